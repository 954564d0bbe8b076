//! Line charts in SVG, with the page's colours.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A chart of lines over a numeric axis, both axes from 0.
pub struct Chart<'a> {
    pub x: &'a str,
    pub y: &'a str,
    pub lines: Vec<ChartSeries>,
    /// Vertical marks with labels.
    pub marks: Vec<(f64, String)>,
    /// Whether the x axis has only whole numbers.
    pub whole_x: bool,
}

/// One line of a chart.
pub struct ChartSeries {
    pub name: String,
    pub ink: Ink,
    pub points: Vec<(f64, f64)>,
    pub style: Style,
}

impl ChartSeries {
    pub fn new(name: &str, ink: Ink, points: Vec<(f64, f64)>, style: Style) -> Self {
        Self {
            name: name.to_owned(),
            ink,
            points,
            style,
        }
    }
}

/// The style of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// With a dot on each measured point.
    Dots,
    /// Only dots, for unrelated values.
    Apart,
    /// Without dots.
    Plain,
    /// For values that were not measured.
    Dashed,
}

/// A colour by its role; the page's style sheet defines it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Text,
    Grid,
    Measured,
    Published,
    PublishedToo,
    Ideal,
    Event,
}

impl Ink {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Text, "--text"),
        (Self::Grid, "--grid"),
        (Self::Measured, "--measured"),
        (Self::Published, "--published"),
        (Self::PublishedToo, "--published-too"),
        (Self::Ideal, "--ideal"),
        (Self::Event, "--event"),
    ];

    /// The CSS variable of the colour.
    pub fn variable(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The placeholder of the colour until the chart is drawn.
    fn stand_in(self) -> RGBColor {
        RGBColor(1, 2, self as u8)
    }
}

const WIDTH: u32 = 760;
const HEIGHT: u32 = 360;
const FONT: &str = "sans-serif";

impl Chart<'_> {
    /// The SVG element; empty if the chart cannot be drawn, since tables have the figures as well.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        if self.draw(&mut svg).is_err() {
            return String::new();
        }
        for (ink, variable) in Ink::ALL {
            let RGBColor(r, g, b) = ink.stand_in();
            svg = svg.replace(
                &format!("\"#{r:02X}{g:02X}{b:02X}\""),
                &format!("\"var({variable})\""),
            );
        }
        // The page sets the width, the drawing keeps its proportions.
        svg.replacen(
            &format!("width=\"{WIDTH}\" height=\"{HEIGHT}\""),
            "role=\"img\"",
            1,
        )
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let marks = self.marks.iter().map(|mark| mark.0);
        let right = extent(points().map(|point| point.0).chain(marks));
        let top = extent(points().map(|point| point.1));

        let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..right * 1.04, 0.0..top * 1.08)?;
        let text = |size: u32| (FONT, size).into_font().color(&Ink::Text.stand_in());
        let x_label = |x: &f64| {
            if self.whole_x && x.fract() != 0.0 {
                return String::new();
            }
            crate::format::plain(*x)
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(Ink::Grid.stand_in())
            .light_line_style(TRANSPARENT)
            .axis_style(Ink::Grid.stand_in())
            .x_labels(9)
            .y_labels(6)
            .x_label_formatter(&x_label)
            .y_label_formatter(&|y| crate::format::plain(*y))
            .label_style(text(16))
            .axis_desc_style(text(17))
            .x_desc(self.x)
            .y_desc(self.y)
            .draw()?;
        for (at, word) in &self.marks {
            let ink = Ink::Event.stand_in();
            let top = top * 1.08;
            chart.draw_series([PathElement::new(
                vec![(*at, 0.0), (*at, top)],
                ink.stroke_width(2),
            )])?;
            // The label is on the side with more room.
            let (side, gap) = if *at > right / 2.0 {
                (HPos::Right, -0.01)
            } else {
                (HPos::Left, 0.01)
            };
            let style = (FONT, 16)
                .into_font()
                .color(&ink)
                .pos(Pos::new(side, VPos::Top));
            chart.draw_series([Text::new(word.clone(), (at + gap * right, top), style)])?;
        }
        for line in &self.lines {
            let (ink, points) = (line.ink.stand_in(), line.points.iter().copied());
            if line.style == Style::Dashed {
                chart.draw_series(DashedLineSeries::new(points, 6, 5, ink.stroke_width(2)))?;
                continue;
            }
            if line.style != Style::Apart {
                chart.draw_series(LineSeries::new(points.clone(), ink.stroke_width(3)))?;
            }
            if line.style != Style::Plain {
                chart.draw_series(points.map(|point| Circle::new(point, 5, ink.filled())))?;
            }
        }
        root.present()?;
        drop(chart);
        drop(root);
        Ok(())
    }
}

/// The end of an axis from 0; 1 without values.
fn extent(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most.is_normal() { most } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> String {
        let name = String::new();
        let line = ChartSeries {
            name,
            ink: Ink::Measured,
            points,
            style: Style::Dots,
        };
        let (lines, marks) = (vec![line], Vec::new());
        Chart {
            x: "x",
            y: "y",
            lines,
            marks,
            whole_x: true,
        }
        .svg()
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_chart() {
        for points in [
            vec![],
            vec![(0.0, 0.0)],
            vec![(1.0, f64::NAN)],
            vec![(1.0, f64::MIN_POSITIVE)],
        ] {
            assert!(chart(points).contains("</svg>"));
        }
    }

    #[test]
    fn every_colour_is_the_pages() {
        let svg = chart(vec![(1.0, 5.0), (2.0, 9.0)]);
        assert!(svg.contains("var(--measured)") && svg.contains("var(--grid)"));
        assert!(!svg.contains("\"#"), "{svg}");
    }
}
