//! Members of a JSON object beside those of the item, removed while the item is read. `serde(flatten)` would copy all
//! others first.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};

/// The members of an object that are not the item's.
pub trait ExtraMembers<'de>: Default {
    /// Reads the value of a member, if the member belongs here.
    fn take<A: MapAccess<'de>>(&mut self, member: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// Reads an object with an item and further members.
pub fn read<'de, D, Item, Other>(deserializer: D) -> Result<(Item, Other), D::Error>
where
    D: Deserializer<'de>,
    Item: Deserialize<'de>,
    Other: ExtraMembers<'de>,
{
    deserializer.deserialize_map(ItemVisitor(PhantomData))
}

struct ItemVisitor<Item, Other>(PhantomData<(Item, Other)>);

impl<'de, Item: Deserialize<'de>, Other: ExtraMembers<'de>> Visitor<'de>
    for ItemVisitor<Item, Other>
{
    type Value = (Item, Other);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let mut other = Other::default();
        let members = ItemMembers {
            map,
            other: &mut other,
            _item: PhantomData,
        };
        let item = Item::deserialize(MapAccessDeserializer::new(members))?;
        Ok((item, other))
    }
}

/// The members that are the item's.
struct ItemMembers<'a, 'de, A, Other> {
    map: A,
    other: &'a mut Other,
    _item: PhantomData<&'de ()>,
}

impl<'de, A: MapAccess<'de>, Other: ExtraMembers<'de>> MapAccess<'de>
    for ItemMembers<'_, 'de, A, Other>
{
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(MemberName(name)) = self.map.next_key()? {
            if !self.other.take(&name, &mut self.map)? {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// The name of a member; it is copied only if it has escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
