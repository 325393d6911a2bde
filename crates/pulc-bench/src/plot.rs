//! Plots in the style of Parnass's comparison of all the cluster's libraries: latency and bandwidth against message size, one line a
//! layer, one pair of pictures a place, as SVG and as PNG. Called by `layers`, by `peers`, and by `pulc bench plot` for rows that were kept.

use crate::Error;
use crate::row::{self, Layer, Place, Row};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// What `pulc bench layers --json` has written; lines that begin with # are passed over
    rows: PathBuf,
    /// Folder for the pictures
    directory: PathBuf,
}

/// The characters that the pictures need, so that they look the same on machines without fonts.
const FONT: &[u8] = include_bytes!("../assets/DejaVuSans-ascii.ttf");
pub const FAMILY: &str = "sans-serif";
const WIDTH: u32 = 960;
const HEIGHT: u32 = 600;
/// A PNG has so many points for one of the SVG.
const SCALE_OF_PNG: u32 = 2;

pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let text = std::fs::read_to_string(&args.rows).map_err(Error::system("read the rows"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = lines.map(|line| serde_json::from_str(line).map_err(|_| Error::Nonsense(line.to_owned())));
    let rows: Vec<Row> = rows.collect::<Result<_, _>>()?;
    if rows.is_empty() {
        return Err(Error::NoRows);
    }
    for file in draw(&rows, &args.directory)? {
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What a picture shows.
#[derive(Clone, Copy)]
struct Figure {
    name: &'static str,
    title: &'static str,
    of: fn(&Row) -> Option<f64>,
    shown: fn(f64) -> String,
    /// Latency and bandwidth both grow with the size.
    corner: Corner,
}

const FIGURES: [Figure; 2] = [
    Figure {
        name: "latency",
        title: "one-way latency",
        of: |row| row.latency_ns_p50,
        shown: row::time,
        corner: Corner::LowerRight,
    },
    Figure {
        name: "bandwidth",
        title: "bandwidth",
        of: |row| row.bandwidth_bytes_per_s,
        shown: row::rate,
        corner: Corner::UpperLeft,
    },
];

/// Draws everything that the rows hold; returns the files.
pub fn draw(rows: &[Row], directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for place in [Place::Node, Place::Core, Place::Net] {
        for figure in FIGURES {
            let Some(chart) = Chart::of(rows, place, figure) else { continue };
            files.extend(write(&chart, &directory.join(format!("{}-{}", figure.name, place.name())))?);
        }
    }
    Ok(files)
}

/// Draws lines of another kind than rows; `name` has no extension. Without any point nothing is drawn.
pub fn draw_lines(
    title: &str,
    lines: Vec<Line>,
    shown: fn(f64) -> String,
    corner: Corner,
    name: &Path,
) -> Result<Vec<PathBuf>, Error> {
    Chart::with(title.to_owned(), lines, shown, corner).map_or(Ok(Vec::new()), |chart| write(&chart, name))
}

/// One line of a picture: values against message sizes.
pub struct Line {
    name: String,
    colour: RGBColor,
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A line in the colour of its number.
    pub fn numbered(number: usize, name: &str) -> Line {
        const COLOURS: [RGBColor; 6] = [
            RGBColor(214, 39, 40),
            RGBColor(31, 119, 180),
            RGBColor(44, 160, 44),
            RGBColor(23, 160, 170),
            RGBColor(127, 127, 127),
            RGBColor(148, 60, 189),
        ];
        Line { name: name.to_owned(), colour: COLOURS[number % COLOURS.len()], points: Vec::new() }
    }
}

/// Where the names stand: a corner without lines.
#[derive(Clone, Copy)]
pub enum Corner {
    LowerRight,
    UpperLeft,
}

/// What can be drawn in any size.
pub trait Picture {
    /// Width and height, in points.
    fn size(&self) -> (u32, u32);

    /// Each point of it is drawn as `scale` points.
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, scale: u32) -> Result<(), Error>;
}

/// As SVG and as PNG; `name` has no extension. Returns the files.
pub fn write(picture: &impl Picture, name: &Path) -> Result<Vec<PathBuf>, Error> {
    // Fails only for a font that makes no sense, and this one is tested.
    let _ = register_font(FAMILY, FontStyle::Normal, FONT);
    if let Some(directory) = name.parent() {
        std::fs::create_dir_all(directory).map_err(Error::system("make the folder for the plots"))?;
    }
    let mut files = Vec::new();
    for (file, bytes) in [(name.with_extension("svg"), svg(picture)?), (name.with_extension("png"), png(picture)?)] {
        std::fs::write(&file, bytes).map_err(Error::system("write a plot"))?;
        files.push(file);
    }
    Ok(files)
}

fn svg(picture: &impl Picture) -> Result<Vec<u8>, Error> {
    let mut text = String::new();
    picture.draw(&SVGBackend::with_string(&mut text, picture.size()).into_drawing_area(), 1)?;
    Ok(text.into_bytes())
}

fn png(picture: &impl Picture) -> Result<Vec<u8>, Error> {
    let (width, height) = picture.size();
    let (width, height) = (width * SCALE_OF_PNG, height * SCALE_OF_PNG);
    let mut points = vec![0; (width * height * 3) as usize];
    picture.draw(&BitMapBackend::with_buffer(&mut points, (width, height)).into_drawing_area(), SCALE_OF_PNG)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&points));
    written.map_err(|error| Error::Drawing(error.to_string()))?;
    Ok(bytes)
}

/// One picture: its lines, and how far its axes reach.
struct Chart {
    title: String,
    shown: fn(f64) -> String,
    corner: Corner,
    lines: Vec<Line>,
    sizes: (f64, f64),
    figures: (f64, f64),
}

impl Chart {
    /// None: these rows have no such figure.
    fn of(rows: &[Row], place: Place, figure: Figure) -> Option<Chart> {
        let mut lines: Vec<(Layer, Line)> = Vec::new();
        for row in rows.iter().filter(|row| row.place == place) {
            let Some(value) = (figure.of)(row).filter(|value| *value > 0.0) else { continue };
            let at = lines.iter().position(|(layer, _)| *layer == row.layer).unwrap_or_else(|| {
                let line = Line { name: row.layer.name().to_owned(), colour: colour(row.layer), points: Vec::new() };
                lines.push((row.layer, line));
                lines.len() - 1
            });
            lines[at].1.points.push((row.bytes as f64, value));
        }
        lines.sort_by_key(|(layer, _)| *layer);
        let lines = lines.into_iter().map(|(_, line)| line).collect();
        Chart::with(format!("{}, {}", figure.title, place.title()), lines, figure.shown, figure.corner)
    }

    fn with(title: String, mut lines: Vec<Line>, shown: fn(f64) -> String, corner: Corner) -> Option<Chart> {
        lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let all = || lines.iter().flat_map(|line| &line.points);
        // A little room around, so that a single size is a picture as well.
        let range = |of: fn(&(f64, f64)) -> f64| {
            let (least, most) = all().map(of).fold((f64::MAX, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
            (least / 1.4, most * 1.4)
        };
        let (sizes, figures) = (range(|point| point.0), range(|point| point.1));
        let is_empty = all().next().is_none();
        (!is_empty).then_some(Chart { title, shown, corner, lines, sizes, figures })
    }
}

impl Picture for Chart {
    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, scale: u32) -> Result<(), Error> {
        let failed = |error: DrawingAreaErrorKind<B::ErrorType>| Error::Drawing(error.to_string());
        let font = |size: u32| (FAMILY, size * scale).into_font();
        area.fill(&WHITE).map_err(failed)?;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, font(20))
            .margin(14 * scale)
            .x_label_area_size(40 * scale)
            .y_label_area_size(84 * scale)
            .build_cartesian_2d(
                (self.sizes.0..self.sizes.1).log_scale().base(2.0),
                (self.figures.0..self.figures.1).log_scale(),
            )
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(BLACK.mix(0.05))
            .bold_line_style(BLACK.mix(0.15))
            .x_desc("message size")
            .x_labels(14)
            .x_label_formatter(&|bytes| row::size(bytes.round() as usize))
            .y_label_formatter(&|value| (self.shown)(*value))
            .label_style(font(13))
            .draw()
            .map_err(failed)?;
        for line in &self.lines {
            let style = ShapeStyle { color: line.colour.to_rgba(), filled: true, stroke_width: 2 * scale };
            let series = LineSeries::new(line.points.iter().copied(), style).point_size(3 * scale);
            chart
                .draw_series(series)
                .map_err(failed)?
                .label(line.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18 * scale as i32, y)], style));
        }
        let corner = match self.corner {
            Corner::LowerRight => SeriesLabelPosition::LowerRight,
            Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
        };
        chart
            .configure_series_labels()
            .position(corner)
            .legend_area_size(26 * scale)
            .margin(8 * scale)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(font(13))
            .draw()
            .map_err(failed)?;
        area.present().map_err(failed)
    }
}

/// Warm colours for the house's own floors, cold and grey ones for what the kernel offers.
fn colour(layer: Layer) -> RGBColor {
    match layer {
        Layer::Hardware => RGBColor(0, 0, 0),
        Layer::Device => RGBColor(140, 86, 75),
        Layer::Link => RGBColor(188, 128, 0),
        Layer::Encrypted => RGBColor(230, 180, 60),
        Layer::Rawdata => RGBColor(214, 39, 40),
        Layer::Shared => RGBColor(255, 127, 14),
        Layer::Port => RGBColor(227, 26, 140),
        Layer::Am => RGBColor(148, 60, 189),
        Layer::Leaf => RGBColor(197, 140, 222),
        Layer::Mpi => RGBColor(120, 20, 60),
        Layer::Socket => RGBColor(0, 128, 128),
        Layer::Threads => RGBColor(110, 190, 190),
        Layer::Pipe => RGBColor(127, 127, 127),
        Layer::Unix => RGBColor(23, 160, 170),
        Layer::Tcp => RGBColor(31, 119, 180),
        Layer::Udp => RGBColor(44, 160, 44),
        Layer::Gso => RGBColor(120, 200, 80),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figures;

    fn rows() -> Vec<Row> {
        let sizes = [8, 1024, 1 << 20];
        let layers = [Layer::Device, Layer::Port, Layer::Tcp];
        let figures = |bytes: usize, layer: Layer| Figures {
            latency_ns_p50: Some(bytes as f64 * (1.0 + f64::from(layer as u8))),
            latency_ns_p99: None,
            bandwidth_bytes_per_s: (layer != Layer::Device).then_some(1e9),
            messages_per_s: None,
        };
        sizes
            .iter()
            .flat_map(|bytes| layers.map(|layer| Row::new(layer, Place::Node, *bytes, figures(*bytes, layer))))
            .collect()
    }

    #[test]
    fn the_font_of_the_plots_is_a_font() {
        assert!(register_font("a family of this test", FontStyle::Normal, FONT).is_ok());
    }

    #[test]
    fn a_picture_has_a_line_for_each_layer_with_the_figure_and_its_name() {
        let _ = register_font(FAMILY, FontStyle::Normal, FONT);
        let latency = Chart::of(&rows(), Place::Node, FIGURES[0]).unwrap();
        let text = String::from_utf8(svg(&latency).unwrap()).unwrap();
        assert!(
            ["device", "port", "tcp", "8 KiB", "two cores of one node"].iter().all(|word| text.contains(word)),
            "{text}"
        );
        assert!(text.matches("<polyline").count() >= 3, "{text}");
        let bandwidth = Chart::of(&rows(), Place::Node, FIGURES[1]).unwrap();
        assert!(!String::from_utf8(svg(&bandwidth).unwrap()).unwrap().contains("device"));
        assert!(Chart::of(&rows(), Place::Net, FIGURES[0]).is_none());
    }

    #[test]
    fn a_png_has_the_promised_size_and_more_than_one_colour() {
        let _ = register_font(FAMILY, FontStyle::Normal, FONT);
        let bytes = png(&Chart::of(&rows(), Place::Node, FIGURES[0]).unwrap()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut points = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut points).unwrap();
        assert_eq!((info.width, info.height), (WIDTH * SCALE_OF_PNG, HEIGHT * SCALE_OF_PNG));
        let colours: std::collections::BTreeSet<&[u8]> = points.chunks(3).collect();
        assert!([Layer::Device, Layer::Port, Layer::Tcp].iter().all(|layer| {
            let RGBColor(red, green, blue) = colour(*layer);
            colours.contains(&[red, green, blue][..])
        }));
    }
}
