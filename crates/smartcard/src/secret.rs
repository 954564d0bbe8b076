use zeroize::Zeroizing;

/// The parts one after the other, in one allocation: a vector that grows leaves copies behind.
pub fn joined(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut whole = Zeroizing::new(Vec::with_capacity(len));
    for part in parts {
        whole.extend_from_slice(part);
    }
    whole
}
