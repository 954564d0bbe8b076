//! Streams in odd pieces, and the frames that are in them.

/// The input's first byte, which says how the rest is read, and the rest.
pub fn split(input: &[u8]) -> Option<(u8, &[u8])> {
    input.split_first().map(|(how, rest)| (*how, rest))
}

/// A frame of the whole rest, where the highest bit of `how` says so; else the rest as it is.
pub fn stream(how: u8, rest: &[u8]) -> Vec<u8> {
    if how & 0x80 == 0 {
        return rest.to_vec();
    }
    let len = u32::try_from(rest.len()).expect("a fuzzer's input is short");
    [&len.to_le_bytes(), rest].concat()
}

/// The pieces in which it comes.
pub fn pieces(how: u8, stream: &[u8]) -> std::slice::Chunks<'_, u8> {
    let len = match how & 0x3f {
        0 => stream.len().max(1),
        odd => 1 + usize::from(odd) * usize::from(odd),
    };
    stream.chunks(len)
}
