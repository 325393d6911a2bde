//! Temperatures to colours: one palette of 256 colours, black over violet, red and yellow to white, shared by terminal, PNG
//! and GIF. Brightness rises steadily, so it also reads well in grey and for the colour-blind.

/// Temperature in 0..1, red, green, blue.
const ANCHORS: [(f32, [u8; 3]); 9] = [
    (0.00, [5, 4, 18]),
    (0.12, [30, 14, 68]),
    (0.26, [86, 17, 108]),
    (0.40, [150, 33, 100]),
    (0.54, [208, 62, 66]),
    (0.68, [242, 110, 30]),
    (0.82, [252, 176, 44]),
    (0.93, [253, 233, 128]),
    (1.00, [255, 255, 236]),
];

/// The palette, index 0 coldest.
pub fn colours() -> [[u8; 3]; 256] {
    std::array::from_fn(|index| {
        let t = index as f32 / 255.0;
        let upper = ANCHORS.iter().position(|(at, _)| *at >= t).unwrap_or(ANCHORS.len() - 1).max(1);
        let ((low, from), (high, to)) = (ANCHORS[upper - 1], ANCHORS[upper]);
        let share = (t - low) / (high - low);
        std::array::from_fn(|channel| {
            (f32::from(from[channel]) + share * (f32::from(to[channel]) - f32::from(from[channel]))).round() as u8
        })
    })
}

/// Maps temperatures to palette indices.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    per_degree: f64,
}

impl Scale {
    pub fn new(low: f64, high: f64) -> Scale {
        Scale { low, per_degree: if high > low { 255.0 / (high - low) } else { 0.0 } }
    }

    pub fn index(self, temperature: f64) -> u8 {
        // `as` saturates; NaN becomes 0.
        ((temperature - self.low) * self.per_degree + 0.5) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brightness_never_falls_with_temperature() {
        let bright = |[r, g, b]: [u8; 3]| 0.2126 * f32::from(r) + 0.7152 * f32::from(g) + 0.0722 * f32::from(b);
        assert!(colours().windows(2).all(|pair| bright(pair[0]) <= bright(pair[1]) + 0.6));
    }

    #[test]
    fn the_scale_covers_the_palette_and_clamps() {
        let scale = Scale::new(-1.0, 1.0);
        assert_eq!([-9.0, -1.0, 0.0, 1.0, 9.0, f64::NAN].map(|t| scale.index(t)), [0, 0, 128, 255, 255, 0]);
        assert_eq!(Scale::new(1.0, 1.0).index(1.0), 0);
    }
}
