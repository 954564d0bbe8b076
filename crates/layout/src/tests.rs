//! Tables at every width.

use crate::grid::arrange;
use crate::{Column, paragraph, table};

/// An id of 20 bytes.
const ID: &str = "00112233445566778899aabbccddeeff00112233";

/// A table of two keys, with a column that is empty in both.
fn keys(id: &str, width: usize) -> String {
    let columns = [
        Column::whole("LABEL"),
        Column::prose("CLASS"),
        Column::whole("ID"),
        Column::number("SIZE"),
        Column::prose("TROUBLE"),
        Column::prose("SERVED BY"),
    ];
    let row = |label: &str, id: &str| {
        ["private key", id, "2,048 bits", "", "hsm1 hsm2 hsm3"]
            .into_iter()
            .fold(vec![label.to_owned()], |mut row, cell| {
                row.push(cell.to_owned());
                row
            })
    };
    table(&columns, [row("web", id), row("mail", "0a")], width)
}

fn widest(text: &str) -> usize {
    text.lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

#[test]
fn a_table_with_room_has_no_broken_cell() {
    let expected = "\
LABEL  CLASS        ID          SIZE  SERVED BY
web    private key  0011  2,048 bits  hsm1 hsm2 hsm3
mail   private key  0a    2,048 bits  hsm1 hsm2 hsm3";
    assert_eq!(keys("0011", 200), expected);
    assert_eq!(keys("0011", widest(expected)), expected);
}

#[test]
fn prose_is_broken_before_anything_else() {
    let expected = "\
LABEL CLASS   ID                                             SIZE SERVED
                                                                  BY
web   private 00112233445566778899aabbccddeeff00112233 2,048 bits hsm1
      key                                                         hsm2
                                                                  hsm3
mail  private 0a                                       2,048 bits hsm1
      key                                                         hsm2
                                                                  hsm3";
    assert_eq!(keys(ID, 72), expected);
}

#[test]
fn a_table_without_room_becomes_records() {
    let expected = "\
LABEL      web
CLASS      private key
ID
00112233445566778899aabbccddeeff00112233
SIZE       2,048 bits
SERVED BY  hsm1 hsm2 hsm3

LABEL      mail
CLASS      private key
ID         0a
SIZE       2,048 bits
SERVED BY  hsm1 hsm2 hsm3";
    assert_eq!(keys(ID, 40), expected);
    assert_eq!(keys(ID, 71), keys(ID, 71).replace("ID\n", "ID         "));
}

/// At every width: a table that is wider than the terminal has a word that is.
#[test]
fn ids_and_numbers_are_whole_at_every_width() {
    let id = ID.repeat(2);
    for width in 1..=200 {
        let table = keys(&id, width);
        assert!(table.contains(&id), "{width}\n{table}");
        assert_eq!(table.matches("2,048 bits").count(), 2, "{width}\n{table}");
        let longest = id.len().max(width);
        assert!(widest(&table) <= longest, "{width}\n{table}");
    }
}

#[test]
fn wide_characters_take_two_columns() {
    let columns = [Column::whole("LABEL"), Column::whole("ID")];
    let rows = [["鍵束の鍵", "01"], ["web", "02"]].map(|row| row.map(str::to_owned));
    let expected = "LABEL     ID\n鍵束の鍵  01\nweb       02";
    assert_eq!(table(&columns, rows, 80), expected);
}

#[test]
fn a_label_writes_nowhere_else_on_the_screen() {
    let rows = [["a\u{1b}[2Jb\nc".to_owned()]];
    assert_eq!(
        table(&[Column::whole("LABEL")], rows, 80),
        "LABEL\na?[2Jb?c"
    );
}

#[test]
fn columns_grow_from_the_narrowest() {
    assert_eq!(arrange(&[2, 4], &[9, 9], 1, 11), Some(vec![5, 5]));
    assert_eq!(arrange(&[2, 4], &[3, 9], 1, 80), Some(vec![3, 9]));
    assert_eq!(arrange(&[2, 4], &[9, 9], 1, 6), None);
    assert_eq!(arrange(&[], &[], 1, 0), Some(Vec::new()));
}

#[test]
fn paragraphs_are_broken_between_words() {
    let text = "a ".repeat(60) + &"b".repeat(90);
    let text = paragraph(&text, 80);
    let lengths: Vec<usize> = text.lines().map(str::len).collect();
    assert_eq!(lengths, [79, 39, 90]);
}

#[test]
fn a_short_row_ends_with_empty_cells() {
    let columns = [
        Column::whole("SERIAL"),
        Column::prose("PIN"),
        Column::whole("KEYS"),
    ];
    let rows = [
        vec!["c1", "3 tries left", "2"],
        vec!["c2", "fails, see below"],
    ];
    let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect::<Vec<_>>());
    let expected = "\
SERIAL  PIN               KEYS
c1      3 tries left      2
c2      fails, see below";
    assert_eq!(table(&columns, rows.clone(), 80), expected);
    let records = table(&columns, rows, 12);
    assert!(
        records.ends_with("SERIAL  c2\nPIN\nfails, see\nbelow"),
        "{records}"
    );
}
