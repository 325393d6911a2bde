//! The comparison of `pulc bench sockets` as one picture: a line for every row, on it how many times as good as kernel TCP each of the other ways
//! is, and for the bypass the interval in which that lies.

use crate::Error;
use crate::plot::{FAMILY, Picture};
use plotters::coord::Shift;
use plotters::prelude::*;

/// One row: what it is, and ratios to kernel TCP.
pub struct Compared {
    pub name: String,
    pub bypass: f64,
    pub interval: (f64, f64),
    /// None where there is no such way.
    pub unix: Option<f64>,
    pub sockmap: Option<f64>,
}

pub struct Comparison(pub Vec<Compared>);

const BYPASS: RGBColor = RGBColor(214, 39, 40);
const UNIX: RGBColor = RGBColor(23, 160, 170);
const SOCKMAP: RGBColor = RGBColor(127, 127, 127);
const WIDTH: u32 = 960;
const ROW: u32 = 24;
/// For the title, the axis and the names of the colours.
const AROUND: u32 = 130;

impl Comparison {
    fn range(&self) -> (f64, f64) {
        let all = self
            .0
            .iter()
            .flat_map(|row| [Some(row.interval.0), Some(row.interval.1), row.unix, row.sockmap].into_iter().flatten());
        let (least, most) = all.filter(|ratio| *ratio > 0.0).fold((1.0_f64, 1.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        (least / 1.2, most * 1.2)
    }
}

impl Picture for Comparison {
    fn size(&self) -> (u32, u32) {
        (WIDTH, AROUND + ROW * self.0.len() as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, scale: u32) -> Result<(), Error> {
        let failed = |error: DrawingAreaErrorKind<B::ErrorType>| Error::Drawing(error.to_string());
        let font = |size: u32| (FAMILY, size * scale).into_font();
        let (least, most) = self.range();
        let rows = self.0.len() as f64;
        area.fill(&WHITE).map_err(failed)?;
        let mut chart = ChartBuilder::on(area)
            .caption("times kernel TCP, more is better", font(20))
            .margin(14 * scale)
            .x_label_area_size(36 * scale)
            .y_label_area_size(330 * scale)
            .build_cartesian_2d((least..most).log_scale(), rows..-1.0)
            .map_err(failed)?;
        // Without the unit: ratios have none.
        let bare = |name: &str| name.rsplit_once(", ").map_or(name, |(bare, _)| bare).to_owned();
        let names: Vec<String> = self.0.iter().map(|row| bare(&row.name)).collect();
        let name = |at: &f64| names.get(at.round() as usize).filter(|_| at.fract().abs() < 0.01 && *at >= 0.0).cloned();
        chart
            .configure_mesh()
            .light_line_style(BLACK.mix(0.04))
            .bold_line_style(BLACK.mix(0.1))
            .y_labels(2 * self.0.len() + 4)
            .y_label_formatter(&|at| name(at).unwrap_or_default())
            .x_label_formatter(&|ratio| format!("{ratio}"))
            .label_style(font(13))
            .draw()
            .map_err(failed)?;
        let even = ShapeStyle { color: BLACK.to_rgba(), filled: true, stroke_width: scale };
        chart.draw_series([PathElement::new([(1.0, -1.0), (1.0, rows)], even)]).map_err(failed)?;
        let dots = |of: fn(&Compared) -> Option<f64>, colour: RGBColor, radius: u32| {
            let places = self.0.iter().enumerate().filter_map(move |(at, row)| Some((of(row)?, at as f64)));
            places.map(move |place| Circle::new(place, (radius * scale) as i32, colour.filled())).collect::<Vec<_>>()
        };
        for (way, of, colour, radius) in [
            ("sockmap", (|row| row.sockmap) as fn(&Compared) -> Option<f64>, SOCKMAP, 3),
            ("unix sockets", |row| row.unix, UNIX, 3),
            ("bypass, median and where it lies (95 %)", |row| Some(row.bypass), BYPASS, 4),
        ] {
            let shown = chart.draw_series(dots(of, colour, radius)).map_err(failed)?;
            let key = (radius * scale) as i32;
            shown.label(way).legend(move |place| Circle::new(place, key, colour.filled()));
        }
        let stroke = ShapeStyle { color: BYPASS.to_rgba(), filled: true, stroke_width: 2 * scale };
        let spans = self.0.iter().enumerate();
        let spans =
            spans.map(|(at, row)| PathElement::new([(row.interval.0, at as f64), (row.interval.1, at as f64)], stroke));
        chart.draw_series(spans).map_err(failed)?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .legend_area_size(16 * scale)
            .margin(8 * scale)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(font(13))
            .draw()
            .map_err(failed)?;
        area.present().map_err(failed)
    }
}
