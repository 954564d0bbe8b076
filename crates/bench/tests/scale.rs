//! The scaling measurement: its figures, its table and its page.

mod common;

use common::{fits_80_columns, keeps_schema, measured};
use hsmux_bench::scale;

#[test]
fn scaling_has_efficiency_and_a_page_of_its_own() {
    let options = scale::ScaleOptions {
        title: "pool \"web\" <test>".into(),
        members: vec![4, 1, 2],
        published: None,
    };
    let rates = [10.0, 19.0, 0.0, 36.0];
    let mut measure = |members: usize| Ok(measured(rates[members - 1], 100.0));
    let mut report = scale::run(&options, &mut measure).unwrap();
    let steps = report
        .steps
        .iter()
        .map(|step| (step.members, step.efficiency));
    assert_eq!(steps.collect::<Vec<_>>(), [(1, 1.0), (2, 0.95), (4, 0.9)]);
    report.events.push(scale::ScaleEvent {
        members: 4,
        at_s: 0.1,
        what: "a worker is killed".into(),
    });
    keeps_schema(&report);
    fits_80_columns(&report.to_string());

    let page = report.html();
    let charts = page.matches("<svg").count();
    assert_eq!((charts, page.matches("</svg>").count()), (3, 3));
    assert!(report.reference.is_empty());
    let (_, body) = page.split_once("</style>").unwrap();
    for text in [body.to_lowercase(), report.to_string().to_lowercase()] {
        assert!(!text.contains("published"), "of other devices\n{text}");
    }
    for part in [
        "linear",
        "a worker is killed",
        "prefers-color-scheme",
        "pool &quot;web&quot; &lt;test&gt;",
        "var(--measured)",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The SVG namespace is a name that nothing fetches.
    assert!(page.matches("http").count() == page.matches("http://www.w3.org/2000/svg").count());
    assert!(!page.contains("#0102"), "a colour without a role");
    if let Some(path) = std::env::var_os("HSMUX_KEEP_PAGE") {
        std::fs::write(path, page).unwrap();
    }
}

#[test]
fn scaling_has_the_published_curve_beside_it() {
    let options = scale::ScaleOptions {
        title: "cards".into(),
        members: vec![1, 2, 3, 8],
        published: Some("rsa-2048"),
    };
    let mut measure = |members: usize| Ok(measured(1.5 * members as f64, 658_000.0));
    let report = scale::run(&options, &mut measure).unwrap();
    let published = report.steps.iter().map(|step| step.published_per_second);
    assert_eq!(
        published.collect::<Vec<_>>(),
        [Some(1.5), Some(3.0), None, Some(12.1)]
    );
    let json = keeps_schema(&report);
    assert_eq!(json["published"], "rsa-2048");
    let text = report.to_string();
    let rows = text.lines().map(|line| {
        let cells = line.split_whitespace().take(4);
        cells.collect::<Vec<_>>().join(" ")
    });
    let rows: Vec<_> = rows
        .skip_while(|row| row != "members rate speed-up published")
        .take(5)
        .collect();
    assert_eq!(
        rows[1..],
        [
            "1 1.50/s 1.00 1.50/s",
            "2 3.00/s 2.00 3.00/s",
            "3 4.50/s 3.00 -",
            "8 12.0/s 8.00 12.1/s"
        ],
        "{text}"
    );
    assert!(text.contains("SmartCard-HSMs with rsa-2048"), "{text}");
    fits_80_columns(&text);
    let page = report.html();
    assert!(page.contains("Beside the published") && page.contains("99.2 %"));
    // Once in the chart of speed-up, once in that of throughput.
    assert_eq!(
        page.matches("published: SmartCard-HSM, rsa-2048").count(),
        2
    );
    assert!(!page.contains("brainpool"), "another kind of key");
}

#[test]
fn a_published_row_that_contradicts_itself_is_in_the_page_with_the_reason() {
    let options = scale::ScaleOptions {
        title: "cards".into(),
        members: vec![1],
        published: Some("ec-brainpoolP256r1"),
    };
    let report = scale::run(&options, &mut |_| Ok(measured(4.1, 241_000.0))).unwrap();
    let page = report.html();
    assert!(page.contains("32.8/s*") && page.contains("are 41.0 per second"));
}

#[test]
fn scaling_refuses_what_makes_no_sense_and_says_where_it_failed() {
    let none = scale::ScaleOptions {
        title: String::new(),
        members: vec![0],
        published: None,
    };
    scale::run(&none, &mut |_| unreachable!()).unwrap_err();
    let two = scale::ScaleOptions {
        title: String::new(),
        members: vec![2],
        published: None,
    };
    let failed = scale::run(&two, &mut |_| Err(hsmux_token::Error::lost("gone"))).unwrap_err();
    assert!(failed.to_string().contains("with 2 members"));
}
