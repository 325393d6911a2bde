//! Whole runs on the in-process exchange: same bits for every decomposition, exact physics, images, early ends.

use clap::Parser;
use proptest::prelude::*;
use pulc_heat::error::HeatError;
use pulc_heat::exchange::threads;
use pulc_heat::options::Options;
use pulc_heat::report::Report;
use pulc_heat::run::run;
use std::path::{Path, PathBuf};

fn heat(ranks: usize, flags: &str) -> Result<Report, HeatError> {
    let words = ["heat", "--quiet", "--terminal", "off"].into_iter().chain(flags.split_whitespace());
    let options = Options::try_parse_from(words).unwrap();
    let mut results = threads::run(ranks, |exchange| run(&options, 1, exchange));
    let first = results.remove(0);
    match &first {
        Ok(report) => {
            assert!(report.is_some(), "rank 0 must report");
            assert!(results.iter().all(|other| matches!(other, Ok(None))), "{results:?}");
        }
        Err(_) => assert!(results.iter().all(|other| other.is_err()), "a rank went on after rank 0 gave up"),
    }
    first.map(|report| report.expect("just checked"))
}

fn passes(ranks: usize, flags: &str) -> Report {
    let report = heat(ranks, flags).unwrap_or_else(|error| panic!("{ranks} ranks, {flags}: {error}"));
    if let Some(why) = report.verification.as_ref().and_then(|checks| checks.failure()) {
        panic!("{ranks} ranks, {flags}: {why}");
    }
    report
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("heat-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn grey_png(&self, name: &str, width: usize, height: usize, grey: impl Fn(usize, usize) -> u8) -> String {
        let path = self.0.join(name);
        let mut encoder = png::Encoder::new(std::fs::File::create(&path).unwrap(), width as u32, height as u32);
        encoder.set_color(png::ColorType::Grayscale);
        let pixels: Vec<u8> = (0..width * height).map(|at| grey(at % width, at / width)).collect();
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SHAPES: [(usize, &str); 13] = [
    (1, "rows"),
    (2, "rows"),
    (2, "1x2"),
    (3, "rows"),
    (3, "1x3"),
    (4, "rows"),
    (4, "2x2"),
    (4, "blocks"),
    (6, "rows"),
    (6, "2x3"),
    (6, "3x2"),
    (6, "1x6"),
    (6, "blocks"),
];

#[test]
fn every_decomposition_gives_the_same_bits() {
    for common in [
        "--size 61x47 --steps 137 --verify",
        "--size 61x47 --steps 137 --verify --boundary insulated --start spots -r 0.2",
        "--size 7x6 --steps 41 --gather-every 1 --start half",
        "--size 31x29 --steps 65 --gather-every 0 --boundary insulated --start ring",
    ] {
        let alone = passes(1, common).hash;
        for (ranks, shape) in SHAPES {
            let report = passes(ranks, &format!("{common} --decomposition {shape}"));
            assert_eq!(report.hash, alone, "{ranks} ranks as {shape}: {common}");
        }
    }
}

#[test]
fn a_material_map_gives_the_same_bits_and_keeps_the_heat_in() {
    let folder = Folder::new("material");
    let map =
        folder.grey_png("map.png", 24, 19, |x, y| if (x / 5 + y / 4) % 3 == 0 { 0 } else { (37 * x + 11 * y) as u8 });
    let image = folder.grey_png("start.png", 30, 40, |x, y| (x * y) as u8);
    let common = format!("--size 43x37 --steps 100 --boundary insulated --verify --material {map} --image {image}");
    let alone = passes(1, &common);
    assert!(alone.verification.as_ref().unwrap().sum_drift.is_some());
    for (ranks, shape) in SHAPES {
        assert_eq!(passes(ranks, &format!("{common} --decomposition {shape}")).hash, alone.hash, "{ranks} as {shape}");
    }
}

#[test]
fn an_insulator_around_a_hot_spot_holds_its_heat_exactly() {
    let folder = Folder::new("insulator");
    // A black ring of conductivity 0, two cells thick, around the middle.
    let inside = |x: usize, y: usize| (8..12).contains(&x) && (8..12).contains(&y);
    let ring = |x: usize, y: usize| (6..14).contains(&x) && (6..14).contains(&y) && !inside(x, y);
    let map = folder.grey_png("map.png", 20, 20, move |x, y| if ring(x, y) { 0 } else { 255 });
    let image = folder.grey_png("start.png", 20, 20, move |x, y| if inside(x, y) { 255 } else { 0 });
    let still = passes(2, &format!("--steps 0 --material {map} --image {image}"));
    let run = passes(2, &format!("--steps 200 --material {map} --image {image}"));
    assert_eq!(run.hash, still.hash, "heat crossed a perfect insulator");
}

#[test]
fn the_slowest_mode_decays_exactly() {
    for (ranks, flags) in [
        (1, "--start mode --verify --size 64 --steps 2000"),
        (3, "--start mode --verify --size 63x50 --steps 3000 -r 0.13"),
        (4, "--start mode --verify --size 40x71 --steps 2000 --boundary insulated --decomposition blocks"),
        (2, "--start mode --verify --size 1x9 --steps 50 --boundary insulated"),
    ] {
        let report = passes(ranks, flags);
        let checks = report.verification.unwrap();
        assert_eq!(checks.mode_steps, Some(report.steps), "{flags}");
        assert!(checks.mode_error.unwrap() <= 1e-12, "{flags}");
    }
}

#[test]
fn a_wrong_start_or_step_width_is_caught_by_the_verification() {
    use pulc_heat::decomposition::Grid;
    use pulc_heat::solver::Boundary;
    use pulc_heat::verify::mode_error;
    let grid = Grid { rows: 20, columns: 20 };
    let field: Vec<f64> = (0..400)
        .map(|at| {
            let mode = |index| pulc_heat::start::mode(index, 20, Boundary::Fixed);
            mode(at / 20) * mode(at % 20)
        })
        .collect();
    assert!(mode_error(grid, Boundary::Fixed, 0.25, 0, &field) == 0.0);
    assert!(mode_error(grid, Boundary::Fixed, 0.25, 1, &field) > 1e-3);
}

#[test]
fn pictures_and_animations_are_written() {
    let folder = Folder::new("pictures");
    let (png, gif) = (folder.0.join("end.png"), folder.0.join("run.gif"));
    passes(3, &format!("--size 50x30 --steps 600 --gather-every 1 --png {} --gif {}", png.display(), gif.display()));
    let (grid, _) = pulc_heat::image_files::read_luminance(&png).unwrap();
    assert_eq!((grid.columns, grid.rows), (600, 360));
    let mut decoder = gif::DecodeOptions::new().read_info(std::fs::File::open(&gif).unwrap()).unwrap();
    let mut frames = 0;
    while decoder.next_frame_info().unwrap().is_some() {
        frames += 1;
    }
    assert!((100..=121).contains(&frames), "{frames} frames");
}

#[test]
fn what_rank_0_finds_wrong_ends_every_rank_with_the_reason() {
    let folder = Folder::new("errors");
    let jpeg = folder.0.join("photo.jpg");
    std::fs::write(&jpeg, [0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0]).unwrap();
    for (ranks, flags, expected) in [
        (5, "--size 9x4".to_owned(), "5 ranks cannot share 4 rows"),
        (7, "--size 2x3 --decomposition blocks".to_owned(), "7 ranks cannot be arranged on 2x3"),
        (4, "--decomposition 2x3".to_owned(), "makes 6 tiles but 4 ranks"),
        (2, "-r 0.26".to_owned(), "unstable"),
        (2, "-r NaN".to_owned(), "unstable"),
        (2, "--image /nonexistent/a.png".to_owned(), "cannot read image /nonexistent/a.png"),
        (2, format!("--image {}", jpeg.display()), "a JPEG, only PNG is read"),
        (2, format!("--material {}", Path::new("/").display()), "cannot read image /"),
        (2, "--png /nonexistent/heat.png".to_owned(), "cannot write /nonexistent/heat.png"),
    ] {
        let error = heat(ranks, &flags).expect_err(&flags).to_string();
        assert!(error.contains(expected), "{flags}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_shape_of_any_grid_gives_the_bits_of_one_rank(
        width in 1usize..24, height in 1usize..24, down in 1usize..4, across in 1usize..4,
        steps in 0u64..40, every in 0u64..12, insulated in any::<bool>()
    ) {
        prop_assume!(down <= height && across <= width);
        let boundary = if insulated { "insulated" } else { "fixed" };
        let common = format!("--size {width}x{height} --steps {steps} --gather-every {every} --boundary {boundary} --start spots --verify");
        let alone = passes(1, &common).hash;
        let cut = passes(down * across, &format!("{common} --decomposition {down}x{across}")).hash;
        prop_assert_eq!(alone, cut);
    }
}
