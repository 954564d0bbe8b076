//! Widths of columns.

use super::arrange;

/// The columns of `hsmux key list`: label, class, type, id, served by, trouble.
fn keys(id: u16, width: u16) -> Vec<u16> {
    arrange(&[12, 11, 4, id, 20, 7], Some(3), width)
}

fn total(widths: &[u16]) -> u16 {
    widths.iter().sum::<u16>() + 2 * (widths.len() as u16 - 1)
}

#[test]
fn columns_that_fit_are_as_wide_as_their_content() {
    assert_eq!(keys(32, 200), [12, 11, 4, 32, 20, 7]);
    // To the last character.
    assert_eq!(keys(32, 96), [12, 11, 4, 32, 20, 7]);
    assert_eq!(keys(32, 95), [12, 11, 4, 32, 19, 7]);
}

#[test]
fn ids_are_whole_while_the_others_are_readable() {
    let widths = keys(64, 110);
    assert_eq!((widths[3], total(&widths)), (64, 110));
    assert!(
        widths.iter().all(|&width| width == 4 || width >= 7),
        "{widths:?}"
    );
}

#[test]
fn long_ids_are_wrapped_before_the_others_cannot_be_read() {
    let widths = keys(64, 90);
    assert_eq!((widths[3], total(&widths)), (40, 90));
    assert!(
        widths.iter().all(|&width| width == 4 || width >= 7),
        "{widths:?}"
    );
}

#[test]
fn an_id_of_twenty_bytes_is_whole_at_80_columns() {
    for id in [40, 64] {
        let widths = keys(id, 80);
        assert_eq!((widths[3], total(&widths)), (40, 80));
        assert!(
            widths.iter().all(|&width| width == 4 || width >= 6),
            "{widths:?}"
        );
    }
}

#[test]
fn a_table_that_cannot_shrink_is_wider_than_the_terminal() {
    assert_eq!(keys(64, 20), [6, 6, 4, 40, 6, 6]);
    assert_eq!(arrange(&[30, 30], None, 5), [6, 6]);
    assert_eq!(arrange(&[], None, 80), [0; 0]);
}
