//! Drawing in a terminal: two pixels per character with the upper half block, in 24-bit colour, in 256 colours, or as plain
//! characters. Called by the viewer's thread and by the demo.
//!
//! The picture is redrawn in place, by lines: every line ends with a newline and nothing else moves the cursor upwards, so it
//! survives being forwarded line by line, and what was drawn last stays in the scroll-back. Unchanged characters are skipped
//! and a frame is marked as one update, so nothing flickers. The cursor is never hidden: a killed run leaves the terminal as
//! it was.

use crate::decomposition::Grid;
use crate::palette;
use std::fmt::Write;
use std::io::IsTerminal;
use std::str::FromStr;

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    True,
    Indexed,
    /// Only plain characters.
    None,
}

/// `--terminal`: found out, forced, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalSize {
    Auto,
    Fixed { columns: usize, lines: usize },
    Off,
}

impl FromStr for TerminalSize {
    type Err = String;

    fn from_str(text: &str) -> Result<TerminalSize, String> {
        match (text, text.split_once('x').map(|(columns, lines)| (columns.parse(), lines.parse()))) {
            ("auto", _) => Ok(TerminalSize::Auto),
            ("off", _) => Ok(TerminalSize::Off),
            (_, Some((Ok(columns), Ok(lines)))) if (20..=1000).contains(&columns) && (8..=1000).contains(&lines) => {
                Ok(TerminalSize::Fixed { columns, lines })
            }
            _ => Err(format!("{text:?} is neither auto nor off nor COLUMNSxLINES from 20x8 to 1000x1000")),
        }
    }
}

/// Lines of the terminal that a picture leaves free: a heading, the status line, and the line the cursor ends on.
const RESERVED_LINES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    pub columns: usize,
    pub lines: usize,
    pub colours: Colours,
}

impl Terminal {
    /// The terminal to draw on: forced, or standard output, or the one that the launcher forwards standard output to.
    pub fn find(size: TerminalSize) -> Option<Terminal> {
        let environment = |name: &str| std::env::var(name).unwrap_or_default();
        let (columns, lines) = match size {
            TerminalSize::Off => return None,
            TerminalSize::Fixed { columns, lines } => (columns, lines),
            TerminalSize::Auto if !std::io::stdout().is_terminal() => {
                match environment(pulc_base::boot::ENV_TERMINAL).parse() {
                    Ok(TerminalSize::Fixed { columns, lines }) => (columns, lines),
                    _ => return None,
                }
            }
            TerminalSize::Auto => match rustix::termios::tcgetwinsize(std::io::stdout()) {
                Ok(size) if size.ws_col >= 20 && size.ws_row >= 8 => (size.ws_col.into(), size.ws_row.into()),
                Ok(size) if size.ws_col > 0 => return None,
                _ => (80, 24),
            },
        };
        Some(Terminal { columns, lines, colours: colours_of(environment) })
    }

    /// Pixels of a picture of `grid`, two a line, with the grid's proportions. Leaves room for [`RESERVED_LINES`].
    pub fn picture_size(&self, grid: Grid) -> Grid {
        let width = self.columns.saturating_sub(2).max(2);
        let height = 2 * self.lines.saturating_sub(RESERVED_LINES).max(1);
        let (columns, rows) = if grid.columns * height > grid.rows * width {
            (width, grid.rows * width / grid.columns)
        } else {
            (grid.columns * height / grid.rows, height)
        };
        Grid { rows: rows.max(2) / 2 * 2, columns: columns.max(2) }
    }
}

fn colours_of(environment: impl Fn(&str) -> String) -> Colours {
    let first = ["LC_ALL", "LC_CTYPE", "LANG"].map(&environment).into_iter().find(|value| !value.is_empty());
    let locale = first.unwrap_or_default().to_ascii_lowercase();
    let term = environment("TERM");
    // Terminals that are certainly UTF-8 whatever the locale of a bare container says.
    let modern =
        term.starts_with("xterm") || term.contains("256color") || term.contains("kitty") || term.contains("alacritty");
    let plain = term.is_empty() || term == "dumb" || !environment("NO_COLOR").is_empty();
    if plain || !(locale.contains("utf-8") || locale.contains("utf8") || modern) {
        Colours::None
    } else if matches!(environment("COLORTERM").as_str(), "truecolor" | "24bit") || term.ends_with("-direct") {
        Colours::True
    } else {
        Colours::Indexed
    }
}

/// A picture with a status line below, drawn again and again in the same place.
pub struct Canvas {
    colours: Colours,
    size: Grid,
    /// The picture that is on the screen, empty at first.
    before: Vec<u8>,
    /// Lines on the screen, with the status line; 0 at first.
    drawn: usize,
    palette: Vec<String>,
}

impl Canvas {
    pub fn new(terminal: &Terminal, size: Grid) -> Canvas {
        let code = |(index, [red, green, blue]): (usize, [u8; 3])| match terminal.colours {
            Colours::True => format!("2;{red};{green};{blue}"),
            Colours::Indexed => format!("5;{}", RAMP_OF_256[index * RAMP_OF_256.len() / 256]),
            Colours::None => String::new(),
        };
        let palette = palette::colours().into_iter().enumerate().map(code);
        Canvas { colours: terminal.colours, size, before: Vec::new(), drawn: 0, palette: palette.collect() }
    }

    pub fn size(&self) -> Grid {
        self.size
    }

    /// Lines that a drawing takes, with the status line.
    pub fn lines(size: Grid) -> usize {
        size.rows / 2 + 1
    }

    /// Appends to `out` what shows `pixels` (empty: the picture stays as it is) and `status`.
    pub fn draw(&mut self, pixels: &[u8], status: &str, out: &mut String) {
        let lines = self.size.rows / 2;
        let again = !self.before.is_empty();
        out.push_str("\x1b[?2026h");
        let up = if pixels.is_empty() { self.drawn.min(1) } else { self.drawn };
        if up > 0 {
            let _ = write!(out, "\x1b[{up}A\r");
        }
        self.drawn = self.drawn.max(1);
        if !pixels.is_empty() {
            for line in 0..lines {
                let at = 2 * line * self.size.columns;
                let (upper, lower) = pixels[at..at + 2 * self.size.columns].split_at(self.size.columns);
                self.draw_line(at, upper, lower, again, out);
                out.push_str("\r\n");
            }
            self.before.clear();
            self.before.extend_from_slice(pixels);
            self.drawn = lines + 1;
        }
        let _ = writeln!(out, "{status}\x1b[K\x1b[?2026l");
    }

    fn draw_line(&self, at: usize, upper: &[u8], lower: &[u8], again: bool, out: &mut String) {
        let columns = self.size.columns;
        out.push(' ');
        let (mut skipped, mut foreground, mut background) = (0, None, None);
        for (column, (top, bottom)) in upper.iter().zip(lower).enumerate() {
            if again && self.before[at + column] == *top && self.before[at + columns + column] == *bottom {
                skipped += 1;
                continue;
            }
            if skipped > 0 {
                let _ = write!(out, "\x1b[{skipped}C");
                skipped = 0;
            }
            if self.colours == Colours::None {
                out.push(plain(*top, *bottom));
                continue;
            }
            if foreground != Some(*top) {
                let _ = write!(out, "\x1b[38;{}m", self.palette[usize::from(*top)]);
                foreground = Some(*top);
            }
            if background != Some(*bottom) {
                let _ = write!(out, "\x1b[48;{}m", self.palette[usize::from(*bottom)]);
                background = Some(*bottom);
            }
            out.push('▀');
        }
        if foreground.is_some() {
            out.push_str("\x1b[0m");
        }
    }
}

/// A character as bright as two pixels.
fn plain(top: u8, bottom: u8) -> char {
    const RAMP: &[u8] = b" .:-=+*#%@";
    let mean = (usize::from(top) + usize::from(bottom)) / 2;
    char::from(RAMP[mean * RAMP.len() / 256])
}

/// The palette in the fixed colours of a 256-colour terminal, coldest first.
const RAMP_OF_256: [u8; 17] = [16, 17, 53, 54, 90, 89, 125, 161, 160, 166, 202, 208, 214, 220, 227, 229, 231];

/// A bar of `width` characters, filled to `share` (0..1).
pub fn bar(share: f64, width: usize, colours: Colours) -> String {
    let filled = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    let (full, empty) = if colours == Colours::None { ('#', '.') } else { ('█', '░') };
    (0..width).map(|at| if at < filled { full } else { empty }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: Terminal = Terminal { columns: 80, lines: 24, colours: Colours::True };

    #[test]
    fn a_picture_fits_the_terminal_and_keeps_its_proportions() {
        for (rows, columns) in [(512, 1024), (1024, 512), (1, 5000), (5000, 1), (3, 3)] {
            let size = TERMINAL.picture_size(Grid { rows, columns });
            assert!(size.columns <= 79 && Canvas::lines(size) + 3 <= 24, "{rows}x{columns} gave {size:?}");
            assert!(size.rows.is_multiple_of(2) && size.columns >= 2);
        }
        let size = TERMINAL.picture_size(Grid { rows: 512, columns: 1024 });
        assert_eq!((size.columns, size.rows), (78, 38));
    }

    #[test]
    fn an_unchanged_picture_is_not_drawn_again() {
        let size = Grid { rows: 4, columns: 10 };
        let mut canvas = Canvas::new(&TERMINAL, size);
        let (mut first, mut second) = (String::new(), String::new());
        canvas.draw(&[7; 40], "one", &mut first);
        canvas.draw(&[7; 40], "two", &mut second);
        assert_eq!(first.matches('▀').count(), 20);
        assert_eq!(second.matches('▀').count(), 0);
        assert!(second.contains("\x1b[3A") && second.contains("two"));
        let mut third = String::new();
        let mut pixels = [7; 40];
        pixels[15] = 200;
        canvas.draw(&pixels, "three", &mut third);
        assert_eq!(third.matches('▀').count(), 1);
        assert!(third.contains("\x1b[5C"));
    }

    #[test]
    fn plain_terminals_get_no_colour() {
        let of = |pairs: &'static [(&str, &str)]| {
            colours_of(move |name| pairs.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value).to_owned())
        };
        assert_eq!(of(&[]), Colours::None);
        assert_eq!(of(&[("TERM", "dumb"), ("LANG", "C.UTF-8")]), Colours::None);
        assert_eq!(of(&[("TERM", "xterm-256color"), ("NO_COLOR", "1")]), Colours::None);
        assert_eq!(of(&[("TERM", "xterm-256color")]), Colours::Indexed);
        assert_eq!(of(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")]), Colours::True);
        let mut canvas = Canvas::new(&Terminal { colours: Colours::None, ..TERMINAL }, Grid { rows: 2, columns: 2 });
        let mut out = String::new();
        canvas.draw(&[0, 255, 0, 255], "", &mut out);
        assert!(out.contains(" @") && !out.contains("38;"));
    }
}
