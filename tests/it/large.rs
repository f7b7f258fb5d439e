//! The work for a large configuration grows with its length. `make bench` prints how long the largest takes.

use shapes::{SHAPES, seconds, text};

#[path = "../../hack/large.rs"]
mod shapes;

/// The bytes of the smaller text; large enough that its processor time can be measured.
const SMALL: usize = 8 * 1024;
/// The factor between the lengths of the two texts.
const FACTOR: u8 = 16;

/// Processor time, which other work on the machine hardly changes: growth with the square would be 256 times as much.
#[test]
fn the_work_for_a_configuration_grows_with_its_length() {
    for shape in SHAPES {
        let least = |bytes| {
            let text = text(shape, bytes);
            (0..3).map(|_| seconds(shape, &text)).fold(f64::INFINITY, f64::min)
        };
        let (small, large) = (least(SMALL), least(SMALL * usize::from(FACTOR)));
        let factor = large / small;
        assert!(factor < 4.0 * f64::from(FACTOR), "{}: {factor:.0} times as long for {FACTOR} times the text", shape.0);
    }
}
