//! Image files: PNG in (start temperatures, conductivities), PNG and animated GIF out. Only rank 0 touches files, so the other
//! nodes need none of them. Size and memory of what is read are bounded.

use crate::decomposition::Grid;
use crate::error::HeatError;
use crate::palette;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Most memory that decoding one image may take, in bytes.
const DECODE_MAX_BYTES: usize = 1 << 30;

/// Reads a PNG as luminance in 0..1, row by row. Transparent parts count as black.
pub fn read_luminance(path: &Path) -> Result<(Grid, Vec<f64>), HeatError> {
    let fail = |why: String| HeatError::ReadImage { path: path.to_owned(), why };
    let mut file = BufReader::new(File::open(path).map_err(|error| fail(error.to_string()))?);
    let mut magic = [0u8; 8];
    let read = file.read(&mut magic).map_err(|error| fail(error.to_string()))?;
    if magic[..read] != *b"\x89PNG\r\n\x1a\n" {
        return Err(fail(format!("it is {}, only PNG is read: convert it first", kind_of(&magic[..read]))));
    }
    file.rewind().map_err(|error| fail(error.to_string()))?;
    let mut decoder = png::Decoder::new_with_limits(file, png::Limits { bytes: DECODE_MAX_BYTES });
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(|error| fail(error.to_string()))?;
    let len = reader.output_buffer_size().filter(|len| *len <= DECODE_MAX_BYTES);
    let len =
        len.ok_or_else(|| fail(format!("it needs more than {DECODE_MAX_BYTES} bytes of memory: shrink it first")))?;
    let mut buffer = vec![0; len];
    let info = reader.next_frame(&mut buffer).map_err(|error| fail(error.to_string()))?;
    let grid = Grid { rows: info.height as usize, columns: info.width as usize };
    let channels = info.color_type.samples();
    let wide = info.bit_depth == png::BitDepth::Sixteen;
    let samples: Vec<f64> = if wide {
        buffer.chunks_exact(2).map(|pair| f64::from(u16::from_be_bytes([pair[0], pair[1]])) / 65535.0).collect()
    } else {
        buffer.iter().map(|byte| f64::from(*byte) / 255.0).collect()
    };
    let luminance = |pixel: &[f64]| match pixel {
        [grey] => *grey,
        [grey, alpha] => grey * alpha,
        [red, green, blue] => 0.2126 * red + 0.7152 * green + 0.0722 * blue,
        [red, green, blue, alpha, ..] => (0.2126 * red + 0.7152 * green + 0.0722 * blue) * alpha,
        [] => 0.0,
    };
    Ok((grid, samples.chunks_exact(channels).take(grid.cells()).map(luminance).collect()))
}

fn kind_of(magic: &[u8]) -> &'static str {
    match magic {
        [] => "empty",
        [0xff, 0xd8, ..] => "a JPEG",
        [b'G', b'I', b'F', ..] => "a GIF",
        [b'B', b'M', ..] => "a BMP",
        [b'R', b'I', b'F', b'F', ..] => "a WebP or other RIFF file",
        [b'P', b'1'..=b'6', ..] => "a portable anymap",
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => "a TIFF",
        _ => "not an image",
    }
}

/// Fails now rather than after an hour of computing if `path` cannot be written. Leaves an existing file as it is.
pub fn check_writable(path: &Path) -> Result<(), HeatError> {
    let fail = |error: std::io::Error| HeatError::WriteFile { path: path.to_owned(), why: error.to_string() };
    OpenOptions::new().append(true).create(true).open(path).map(drop).map_err(fail)
}

/// Writes palette indices as a PNG.
pub fn write_png(path: &Path, size: Grid, pixels: &[u8]) -> Result<(), HeatError> {
    let fail = |why: String| HeatError::WriteFile { path: path.to_owned(), why };
    let mut file = BufWriter::new(File::create(path).map_err(|error| fail(error.to_string()))?);
    let mut encoder = png::Encoder::new(&mut file, size.columns as u32, size.rows as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette::colours().concat());
    let mut writer = encoder.write_header().map_err(|error| fail(error.to_string()))?;
    writer.write_image_data(pixels).map_err(|error| fail(error.to_string()))?;
    writer.finish().map_err(|error| fail(error.to_string()))?;
    file.flush().map_err(|error| fail(error.to_string()))
}

/// An animated GIF that grows frame by frame and loops for ever.
pub struct Animation {
    path: PathBuf,
    pub size: Grid,
    encoder: gif::Encoder<BufWriter<File>>,
    frames: usize,
}

/// Longest side of a GIF in pixels.
const GIF_SIDE_MAX: usize = 480;

impl Animation {
    /// Most frames an animation gets; the caller thins out to that.
    pub const FRAMES_MAX: u64 = 120;

    pub fn create(path: &Path, grid: Grid) -> Result<Animation, HeatError> {
        let fail = |why: String| HeatError::WriteFile { path: path.to_owned(), why };
        let size = shrink_to(grid, GIF_SIDE_MAX);
        let file = BufWriter::new(File::create(path).map_err(|error| fail(error.to_string()))?);
        let colours = palette::colours().concat();
        let mut encoder = gif::Encoder::new(file, size.columns as u16, size.rows as u16, &colours)
            .map_err(|error| fail(error.to_string()))?;
        encoder.set_repeat(gif::Repeat::Infinite).map_err(|error| fail(error.to_string()))?;
        Ok(Animation { path: path.to_owned(), size, encoder, frames: 0 })
    }

    pub fn push(&mut self, pixels: &[u8], last: bool) -> Result<(), HeatError> {
        let frame = gif::Frame {
            width: self.size.columns as u16,
            height: self.size.rows as u16,
            buffer: pixels.into(),
            // Hundredths of a second; the last picture stands still for a while.
            delay: if last { 200 } else { 6 },
            ..gif::Frame::default()
        };
        self.frames += 1;
        let path = &self.path;
        self.encoder
            .write_frame(&frame)
            .map_err(|error| HeatError::WriteFile { path: path.clone(), why: error.to_string() })
    }

    pub fn finish(self) -> Result<(), HeatError> {
        let fail = |why: String| HeatError::WriteFile { path: self.path.clone(), why };
        let mut file = self.encoder.into_inner().map_err(|error| fail(error.to_string()))?;
        file.flush().map_err(|error| fail(error.to_string()))
    }
}

/// The size of a picture of `grid` whose longer side is at most `side_max` pixels.
fn shrink_to(grid: Grid, side_max: usize) -> Grid {
    let longest = grid.rows.max(grid.columns);
    if longest <= side_max {
        return grid;
    }
    Grid { rows: (grid.rows * side_max / longest).max(1), columns: (grid.columns * side_max / longest).max(1) }
}

/// The size of the final PNG: small grids are enlarged by a whole factor so that there is something to see.
pub fn png_size(grid: Grid) -> Grid {
    let factor = (640 / grid.columns.max(grid.rows)).max(1);
    let size = Grid { rows: grid.rows * factor, columns: grid.columns * factor };
    shrink_to(size, 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("heat-images-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_written_png_reads_back_with_the_palette_applied() {
        let folder = scratch("roundtrip");
        let size = Grid { rows: 2, columns: 128 };
        let pixels: Vec<u8> = (0..=255).collect();
        write_png(&folder.join("a.png"), size, &pixels).unwrap();
        let (grid, luminance) = read_luminance(&folder.join("a.png")).unwrap();
        assert_eq!(grid, size);
        assert!(luminance[0] < 0.05 && luminance[255] > 0.95);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn sixteen_bit_grey_keeps_its_depth() {
        let folder = scratch("deep");
        let path = folder.join("deep.png");
        let mut encoder = png::Encoder::new(File::create(&path).unwrap(), 2, 1);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::Sixteen);
        encoder.write_header().unwrap().write_image_data(&[0x12, 0x34, 0xff, 0xff]).unwrap();
        let (_, luminance) = read_luminance(&path).unwrap();
        assert_eq!(luminance, [f64::from(0x1234) / 65535.0, 1.0]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn missing_foreign_and_broken_images_are_told_apart() {
        let folder = scratch("bad");
        let text = |path: &Path| read_luminance(path).unwrap_err().to_string();
        assert!(text(&folder.join("none.png")).contains("No such file"));
        std::fs::write(folder.join("a.png"), [0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0]).unwrap();
        assert!(text(&folder.join("a.png")).contains("a JPEG, only PNG is read"));
        std::fs::write(folder.join("b.png"), b"").unwrap();
        assert!(text(&folder.join("b.png")).contains("empty"));
        write_png(&folder.join("c.png"), Grid { rows: 9, columns: 9 }, &[7; 81]).unwrap();
        let whole = std::fs::read(folder.join("c.png")).unwrap();
        for len in 8..whole.len() - 12 {
            std::fs::write(folder.join("c.png"), &whole[..len]).unwrap();
            assert!(read_luminance(&folder.join("c.png")).is_err(), "a PNG cut to {len} bytes was accepted");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_unwritable_path_is_found_before_the_run() {
        assert!(check_writable(Path::new("/nonexistent/heat.png")).is_err());
    }
}
