//! The HTML page of a report.

use std::fmt::Write;

use super::chart::Chart;

/// A page under construction. Every text is escaped.
pub struct Page {
    html: String,
}

impl Page {
    /// A page with a title, and a line below it.
    pub fn new(title: &str, below: &str) -> Self {
        let (title, below) = (escaped(title), escaped(below));
        let style = include_str!("page.css");
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n\
             <header>\n<p class=\"brand\">hsmux</p>\n<h1>{title}</h1>\n<p>{below}</p>\n</header>\n"
        );
        Self { html }
    }

    /// The most important figures, with labels.
    pub fn headline(&mut self, figures: &[(&str, String)]) {
        self.html.push_str("<dl class=\"headline\">\n");
        for (name, value) in figures {
            self.write(format_args!(
                "<div><dd>{}</dd><dt>{}</dt></div>\n",
                escaped(value),
                escaped(name)
            ));
        }
        self.html.push_str("</dl>\n");
    }

    /// A section's heading, and a sentence about it.
    pub fn section(&mut self, heading: &str, about: &str) {
        self.write(format_args!(
            "<h2>{}</h2>\n<p>{}</p>\n",
            escaped(heading),
            escaped(about)
        ));
    }

    /// A chart with its legend.
    pub fn chart(&mut self, chart: &Chart<'_>) {
        self.write(format_args!("<figure>\n{}\n<figcaption>", chart.svg()));
        for line in &chart.lines {
            let (name, ink) = (escaped(&line.name), line.ink.variable());
            self.write(format_args!(
                "<span><i style=\"background:var({ink})\"></i>{name}</span>"
            ));
        }
        self.html.push_str("</figcaption>\n</figure>\n");
    }

    /// A table; all cells but the first are right-aligned.
    pub fn table<const N: usize>(
        &mut self,
        heads: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) {
        self.wide_table(&heads, rows);
    }

    /// The same with any number of columns.
    pub fn wide_table(
        &mut self,
        heads: &[impl AsRef<str>],
        rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
    ) {
        let class = if heads.len() > 8 {
            "table wide"
        } else {
            "table"
        };
        self.write(format_args!("<div class=\"{class}\"><table>\n<thead><tr>"));
        for head in heads {
            let head = escaped(head.as_ref());
            self.write(format_args!("<th scope=\"col\">{head}</th>"));
        }
        self.html.push_str("</tr></thead>\n<tbody>\n");
        for row in rows {
            self.html.push_str("<tr>");
            for cell in row {
                self.write(format_args!("<td>{}</td>", escaped(&cell)));
            }
            self.html.push_str("</tr>\n");
        }
        self.html.push_str("</tbody>\n</table></div>\n");
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        self.html.push_str("</main>\n</body>\n</html>\n");
        self.html
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.html.write_fmt(text);
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let mut page = Page::new("<script>", "a & b");
        page.table(["\"head\""], [["<td>".to_owned()]]);
        let html = page.finish();
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"));
        assert!(html.contains("&lt;td&gt;") && html.contains("a &amp; b"));
    }
}
