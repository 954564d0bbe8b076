//! A page's resources, as in siege's parser: images, scripts and style sheets.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{StartTag, Token, Tokenizer};

/// The references of a page, each once, in its order.
pub fn resources(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut emitter = DefaultEmitter::default();
    // Tags that a script writes do not count.
    emitter.naively_switch_states(true);
    for Ok(token) in Tokenizer::new_with_emitter(page, emitter) {
        if let Token::StartTag(tag) = token
            && let Some(reference) = reference(&tag)
            && !found.contains(&reference)
        {
            found.push(reference);
        }
    }
    found
}

fn reference(tag: &StartTag<()>) -> Option<String> {
    let attribute = |name: &str| {
        let value = tag.attributes.get(name.as_bytes())?;
        Some(String::from_utf8_lossy(value).trim().to_owned())
    };
    let reference = match tag.name.as_slice() {
        b"img" | b"script" => attribute("src"),
        b"body" => attribute("background"),
        b"link" => {
            let kinds = attribute("rel")?.to_ascii_lowercase();
            let mut kinds = kinds.split_ascii_whitespace();
            let is_sheet = kinds.clone().any(|kind| kind == "stylesheet");
            let is_other = kinds.any(|kind| kind == "alternate");
            (is_sheet && !is_other).then(|| attribute("href"))?
        }
        _ => None,
    };
    reference.filter(|reference| !reference.is_empty() && !reference.starts_with("data:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_scripts_and_style_sheets_are_found_once() {
        let page = r#"<!doctype html><html><head>
            <link rel="stylesheet" href="style.css?a=1&amp;b=2"><link rel=icon href=icon.png>
            <LINK HREF='print.css' REL='StyleSheet'><link rel="alternate stylesheet" href="dark.css">
            <script src="/x.js"></script><script>var a = "<img src=no.png>";</script>
            <!-- <img src="commented.png"> --></head>
            <body background=back.png><img alt="a > b" src="logo.png"><img src="logo.png">
            <img src="data:image/png;base64,AA"><img src=""><a href="other.html">other</a></body>"#;
        let expected = [
            "style.css?a=1&b=2",
            "print.css",
            "/x.js",
            "back.png",
            "logo.png",
        ];
        assert_eq!(resources(page), expected);
    }

    #[test]
    fn what_is_no_page_has_nothing() {
        for page in ["", "<", "<img", "<img src=", "\u{0}<link rel>", "<script>"] {
            assert!(resources(page).is_empty(), "{page}");
        }
    }
}
