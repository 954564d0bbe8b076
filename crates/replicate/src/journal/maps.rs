//! Maps of the journal in JSON.

/// A map whose keys are not plain strings, as a list of pairs.
pub(super) mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

/// Maps by numbers of changes. JSON writes a number that is a key as text, which serde does not read back where a
/// record's kind decides what follows.
pub(super) mod numbered {
    use serde::{Deserialize, Deserializer, de::Error};
    use std::collections::BTreeMap;

    /// A map by number.
    pub fn map<'de, V, D>(from: D) -> Result<BTreeMap<u64, V>, D::Error>
    where
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let number = |(key, value): (String, V)| match key.parse() {
            Ok(number) => Ok((number, value)),
            Err(_) => Err(D::Error::custom(format!("{key:?} is no number"))),
        };
        BTreeMap::deserialize(from)?
            .into_iter()
            .map(number)
            .collect()
    }

    /// Such maps by name.
    pub fn maps<'de, V, D>(from: D) -> Result<BTreeMap<String, BTreeMap<u64, V>>, D::Error>
    where
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        #[derive(Deserialize)]
        #[serde(bound = "V: Deserialize<'de>")]
        struct ByNumber<V>(#[serde(deserialize_with = "map")] BTreeMap<u64, V>);

        let named = BTreeMap::<String, ByNumber<V>>::deserialize(from)?;
        Ok(named
            .into_iter()
            .map(|(name, ByNumber(map))| (name, map))
            .collect())
    }
}
