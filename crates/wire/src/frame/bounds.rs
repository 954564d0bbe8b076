//! Bounds of a frame's CBOR item, verified before anything is decoded or allocated.

/// Data items of one call: 1,024 operations of 64 items each.
pub const CALL_ITEMS: usize = 64 << 10;

/// Data items of one answer: a catalogue of 20,000 objects with 30 attributes each.
pub const ANSWER_ITEMS: usize = 2 << 20;

/// Arrays within arrays; an attribute in a catalogue is at depth 8.
const MAX_DEPTH: usize = 16;

const UNSIGNED: u8 = 0;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const SIMPLE: u8 = 7;

/// Counts the data items of one encoded item, which is all of `bytes`; `Err` says which bound it breaks.
///
/// Every length lies within `bytes`, so that a decoder allocates for what has come and not for what was claimed.
/// Only the shortest form of a number, length or type is accepted (RFC 8949, section 4.2.1): one message has one spelling.
pub fn count_items(bytes: &[u8], most: usize) -> Result<usize, String> {
    let mut rest = bytes;
    let mut left = [0_u64; MAX_DEPTH];
    let mut depth = 0;
    let mut items = 0;
    loop {
        items += 1;
        if items > most {
            return Err(format!("more than {most} data items"));
        }
        let (major, argument) = head(&mut rest)?;
        let inner = match major {
            BYTES | TEXT => {
                let len = usize::try_from(argument).ok();
                rest = len.and_then(|len| rest.get(len..)).ok_or_else(beyond)?;
                0
            }
            ARRAY => argument,
            MAP => argument.saturating_mul(2),
            TAG => return Err("a tag, which no message has".into()),
            _ => 0,
        };
        if inner > rest.len() as u64 {
            return Err(beyond());
        }
        if inner > 0 {
            let level = left.get_mut(depth).ok_or_else(too_deep)?;
            *level = inner;
            depth += 1;
            continue;
        }
        // This item ends, and with it each array whose last one it is.
        while depth > 0 {
            left[depth - 1] -= 1;
            if left[depth - 1] > 0 {
                break;
            }
            depth -= 1;
        }
        if depth == 0 {
            break;
        }
    }
    match rest.len() {
        0 => Ok(items),
        rest => Err(format!("{rest} bytes after its end")),
    }
}

/// How many operations a call says that it has, by its first bytes alone: `[0, [[operation, ...]]]`, which is
/// [`Call::Execute`](crate::Call::Execute). 0 for other calls.
pub fn claimed_operations(call: &[u8]) -> u64 {
    let mut rest = call;
    let mut is_head = |wanted| head(&mut rest).is_ok_and(|head| head == wanted);
    if is_head((ARRAY, 2)) && is_head((UNSIGNED, 0)) && is_head((ARRAY, 1)) {
        return match head(&mut rest) {
            Ok((ARRAY, count)) => count,
            _ => 0,
        };
    }
    0
}

/// Takes the head of an item: its major type, and its number, length or count.
fn head(rest: &mut &[u8]) -> Result<(u8, u64), String> {
    let (first, after) = rest.split_first().ok_or_else(beyond)?;
    let (major, info) = (first >> 5, first & 0x1f);
    let len = match info {
        0..=23 => 0,
        24..=27 => 1_usize << (info - 24),
        _ => return Err("a length that is not told before".into()),
    };
    let (argument, after) = after.split_at_checked(len).ok_or_else(beyond)?;
    *rest = after;
    if len == 0 {
        return Ok((major, u64::from(info)));
    }
    let value = argument.iter().fold(0, |v, byte| v << 8 | u64::from(*byte));
    let shorter = if len == 1 { 24 } else { 1 << (4 * len) };
    if value < shorter && major != SIMPLE {
        return Err("a number that is longer than it has to be".into());
    }
    Ok((major, value))
}

fn beyond() -> String {
    "it goes on beyond its end".into()
}

fn too_deep() -> String {
    format!("arrays more than {MAX_DEPTH} deep")
}

#[cfg(test)]
mod tests {
    use hsmux_token::Operation;

    use super::*;
    use crate::{Call, Item};

    fn refused(bytes: &[u8], why: &str) {
        let error = count_items(bytes, 100).unwrap_err();
        assert!(error.contains(why), "{bytes:?}: {error}");
    }

    #[test]
    fn operations_are_counted_by_the_first_bytes_of_a_call() {
        let call = |count| {
            let item = Item {
                behalf: None,
                operation: Operation::Random { len: 1 },
                remaining_us: 1,
            };
            let call = Call::Execute(vec![item; count]);
            minicbor::to_vec(call).expect("a frame")
        };
        for count in [0, 1, 23, 24, 255, 256, 1024] {
            assert_eq!(claimed_operations(&call(count)), count as u64);
            assert_eq!(
                claimed_operations(&call(count)[..8.min(call(count).len())]),
                count as u64
            );
        }
        let info = minicbor::to_vec(Call::Info).expect("a frame");
        for other in [&info[..], b"", b"\x82", b"\x82\x00\x81"] {
            assert_eq!(claimed_operations(other), 0);
        }
    }

    #[test]
    fn items_are_counted_at_every_level() {
        for (bytes, items) in [
            (&[0x01][..], 1),
            (&[0x80], 1),
            (&[0x82, 0x00, 0x82, 0x01, 0x41, 0xff], 5),
            (&[0xa1, 0x01, 0x62, b'a', b'b'], 3),
            (&[0x81, 0xfb, 0, 0, 0, 0, 0, 0, 0, 0], 2),
            (&[0x83, 0xf6, 0x18, 0x18, 0x39, 0x01, 0x00], 4),
        ] {
            assert_eq!(count_items(bytes, 100), Ok(items), "{bytes:?}");
            assert_eq!(count_items(bytes, items), Ok(items), "{bytes:?}");
            let one_less = count_items(bytes, items - 1).unwrap_err();
            assert!(one_less.contains("data items"), "{one_less}");
            for cut in 0..bytes.len() {
                assert!(count_items(&bytes[..cut], 100).is_err(), "{bytes:?} {cut}");
            }
            refused(&[bytes, &[0]].concat(), "1 bytes after its end");
        }
    }

    #[test]
    fn claims_that_nothing_fulfils_are_refused() {
        refused(
            &[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            "beyond",
        );
        refused(
            &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            "beyond",
        );
        refused(
            &[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            "beyond",
        );
        refused(&[0x9a, 0x00, 0x01, 0x00, 0x00, 0x00], "beyond");
        refused(&[0x9f, 0xff], "not told before");
        refused(&[0x5f, 0x41, 0x00, 0xff], "not told before");
        refused(&[0xc0, 0x00], "a tag");
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| [vec![0x81; depth], vec![0x00]].concat();
        assert_eq!(count_items(&nested(MAX_DEPTH), 100), Ok(MAX_DEPTH + 1));
        refused(&nested(MAX_DEPTH + 1), "deep");
    }

    #[test]
    fn a_longer_spelling_is_refused() {
        for bytes in [
            &[0x18, 0x17][..],
            &[0x19, 0x00, 0xff],
            &[0x1a, 0x00, 0x00, 0xff, 0xff],
            &[0x1b, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x98, 0x01, 0x00],
            &[0x58, 0x01, 0x00],
        ] {
            refused(bytes, "longer than it has to be");
        }
    }
}
