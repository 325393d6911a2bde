//! The command line of `heat`. Every flag is defined once, here.

use crate::decomposition::Layout;
use crate::solver::Boundary;
use crate::start::Start;
use crate::terminal::TerminalSize;
use std::path::PathBuf;
use std::str::FromStr;

/// Heat diffusion on a plate, computed by all ranks of a job together
///
/// Solves u_t = div(k grad u) with the explicit five-point scheme. Edges are exchanged in every step; every 20 steps the whole
/// field is gathered to rank 0, which draws it. Start it alone or with `pulc run -n RANKS heat ...`.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "heat", version, max_term_width = 100)]
pub struct Options {
    /// Cells of the plate: N (square) or WIDTHxHEIGHT [default: 512, or the size of the image]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Number of time steps
    #[arg(long, default_value_t = 2000)]
    pub steps: u64,
    /// Built-in start field
    #[arg(long, value_enum, default_value_t = Start::Letters, conflicts_with = "image")]
    pub start: Start,
    /// PNG whose luminance is the start temperature
    #[arg(long, value_name = "PNG")]
    pub image: Option<PathBuf>,
    /// PNG whose grey is the conductivity: white 1, black 0 (insulator)
    #[arg(long, value_name = "PNG")]
    pub material: Option<PathBuf>,
    /// Rim of the plate: held at temperature 0, or insulated
    #[arg(long, value_enum, default_value_t = Boundary::Fixed)]
    pub boundary: Boundary,
    /// Time step as r = k dt / h^2; stable up to 0.25
    #[arg(short, long, default_value_t = 0.25)]
    pub r: f64,
    /// How ranks share the plate: rows, blocks, or DOWNxACROSS (such as 2x3)
    #[arg(long, default_value = "rows")]
    pub decomposition: Layout,
    /// Gather and draw the whole field every so many steps; 0: only at the end
    #[arg(long, value_name = "STEPS", default_value_t = 20)]
    pub gather_every: u64,
    /// Write the final field as PNG
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,
    /// Write the whole run as animated GIF (at most 120 pictures)
    #[arg(long, value_name = "FILE")]
    pub gif: Option<PathBuf>,
    /// Check the result against what is known exactly; exit status 1 if it is wrong
    #[arg(long)]
    pub verify: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Draw as for a terminal of this size (COLUMNSxLINES), even where the output is none; `off` never draws
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub terminal: TerminalSize,
}

/// Most cells along one side.
pub const SIDE_MAX: usize = 16384;

/// Width and height in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let (width, height) = text.split_once('x').unwrap_or((text, text));
        match (width.parse(), height.parse()) {
            (Ok(width), Ok(height)) if (1..=SIDE_MAX).contains(&width) && (1..=SIDE_MAX).contains(&height) => {
                Ok(Size { width, height })
            }
            _ => Err(format!("{text:?} is neither N nor WIDTHxHEIGHT with sides of 1 to {SIDE_MAX} cells")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn sizes_outside_the_limits_are_refused() {
        assert_eq!("64".parse(), Ok(Size { width: 64, height: 64 }));
        assert_eq!("90x40".parse(), Ok(Size { width: 90, height: 40 }));
        for text in ["", "0", "x", "3x0", "16385", "1x2x3", "99999999999999999999", "-4"] {
            assert!(text.parse::<Size>().is_err(), "{text:?} was accepted");
        }
    }
}
