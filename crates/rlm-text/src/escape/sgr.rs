//! The colours that an agent sets, without those that hide text.

/// The maximum difference per channel at which two colours look the same.
const ALIKE: u8 = 24;
/// The first sixteen colours as most terminals show them.
const BASE: [[u8; 3]; 16] = [
    [0, 0, 0],
    [205, 0, 0],
    [0, 205, 0],
    [205, 205, 0],
    [0, 0, 238],
    [205, 0, 205],
    [0, 205, 205],
    [229, 229, 229],
    [127, 127, 127],
    [255, 0, 0],
    [0, 255, 0],
    [255, 255, 0],
    [92, 92, 255],
    [255, 0, 255],
    [0, 255, 255],
    [255, 255, 255],
];

/// The current colours; `None` is the default of the terminal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SgrColors {
    text: Option<[u8; 3]>,
    ground: Option<[u8; 3]>,
}

impl SgrColors {
    /// Updates the colours with the parameters of a sequence, and returns the sequence for the terminal; empty if nothing remains. Concealed text and
    /// numbers with an unknown meaning are dropped. If text and background would look the same, both are reset.
    pub(super) fn take(&mut self, parameters: &str) -> String {
        let numbers: Vec<u16> = parameters
            .split(';')
            .map(|number| match number {
                "" => 0,
                number => number.parse().unwrap_or(u16::MAX),
            })
            .collect();
        let (mut kept, mut rest) = (Vec::new(), numbers.as_slice());
        while let Some((&number, behind)) = rest.split_first() {
            rest = behind;
            match number {
                0 => *self = Self::default(),
                1..=5 | 7 | 9 | 21..=25 | 27 | 29 | 53 | 55 => {}
                30..=37 => self.text = Some(BASE[usize::from(number) - 30]),
                90..=97 => self.text = Some(BASE[usize::from(number) - 82]),
                40..=47 => self.ground = Some(BASE[usize::from(number) - 40]),
                100..=107 => self.ground = Some(BASE[usize::from(number) - 92]),
                39 => self.text = None,
                49 => self.ground = None,
                38 | 48 => {
                    let Some((colour, taken)) = extended(rest) else {
                        // The start of the next number is unknown.
                        break;
                    };
                    match number {
                        38 => self.text = Some(colour),
                        _ => self.ground = Some(colour),
                    }
                    kept.push(number);
                    kept.extend(&rest[..taken]);
                    rest = &rest[taken..];
                    continue;
                }
                _ => continue,
            }
            kept.push(number);
        }
        if self.hides() {
            *self = Self::default();
            kept.extend([39, 49]);
        }
        match kept.is_empty() {
            true => String::new(),
            false => {
                let kept: Vec<_> = kept.iter().map(u16::to_string).collect();
                format!("\u{1b}[{}m", kept.join(";"))
            }
        }
    }

    /// Returns whether the text has about the same colour as its background.
    pub(super) fn hides(&self) -> bool {
        let alike = |(text, ground): ([u8; 3], [u8; 3])| {
            { text.iter().zip(ground) }.all(|(a, b)| a.abs_diff(b) <= ALIKE)
        };
        self.text.zip(self.ground).is_some_and(alike)
    }
}

/// Parses the colour after a 38 or 48, and returns the number of parameters that it uses.
fn extended(numbers: &[u16]) -> Option<([u8; 3], usize)> {
    let byte = |at: usize| u8::try_from(*numbers.get(at)?).ok();
    match numbers.first()? {
        5 => Some((of_palette(byte(1)?), 2)),
        2 => Some(([byte(1)?, byte(2)?, byte(3)?], 4)),
        _ => None,
    }
}

fn of_palette(index: u8) -> [u8; 3] {
    match index {
        0..=15 => BASE[usize::from(index)],
        16..=231 => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let index = index - 16;
            [level(index / 36), level(index / 6 % 6), level(index % 6)]
        }
        232.. => [8 + 10 * (index - 232); 3],
    }
}
