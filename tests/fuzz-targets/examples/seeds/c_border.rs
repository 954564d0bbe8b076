//! What a program gives a module: memory.

// The numbers of PKCS#11 carry their own prefixes.
#[allow(clippy::wildcard_imports)]
use hsmux_token::ck::*;

use super::write;

/// The layouts are those of `hsmux_pkcs11::entry::fuzzing`.
pub fn memory() {
    let array = |mode: u8, bytes: &[u8]| [&[mode, bytes.len() as u8], bytes].concat();
    let mut rows = vec![6];
    for (at, (kind, value)) in [
        (0, &[3; 8][..]),
        (1, &[1]),
        (3, b"web"),
        (19, &[1; 16]),
        (20, &[1; 24]),
        (4, b""),
    ]
    .iter()
    .enumerate()
    {
        rows.extend([&[*kind], &array(4, value)[..]].concat());
        let name = format!("one-{at}");
        write(
            "templates",
            &name,
            [&[1, *kind], &array(4, value)[..], &[5, 1, 2, 3]].concat(),
        );
    }
    rows.extend([5, 1, 2, 3, 0, 1, 9]);
    write("templates", "all", &rows);
    for mode in 0..4 {
        write(
            "templates",
            &format!("wrong-{mode}"),
            [&[1, 3], &array(mode, b"web")[..], &[4, 1, 2]].concat(),
        );
        write(
            "templates",
            &format!("no-array-{mode}"),
            [&[0x81, 3], &array(4, b"web")[..], &[mode]].concat(),
        );
    }
    for (at, entry) in hsmux_token::entries().iter().enumerate() {
        let mut input = vec![at as u8, 1];
        input.extend(array(4, &[4; 16]));
        input.extend(array(4, b"and"));
        input.extend([0; 16]);
        input.extend([1; 17]);
        let name = entry.name.to_ascii_lowercase();
        write("mechanisms", &name, &input);
        let number = match entry.kind {
            CKM_AES_CTR | CKM_RSA_PKCS_PSS => 24,
            CKM_AES_CMAC_GENERAL => 8,
            _ => continue,
        };
        write(
            "mechanisms",
            &format!("{name}-number"),
            [&[at as u8, 1], &array(4, &vec![1; number])[..]].concat(),
        );
    }
}
