//! The picture of the life of a node, from `docs/pictures/life-of-a-node.yaml`.

use ccm_operator::text::{output::wrap, yaml};
use serde::Deserialize;

use crate::pages::picture::Picture;

/// The texts of the picture.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Life {
    title: String,
    /// From left to right.
    steps: Vec<Step>,
    /// The step between the second and the third one, if the initialization fails.
    detour: Step,
    /// The state of the node from the second step on.
    tainted: String,
    /// The state of the node from the third step on.
    open: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    text: String,
    /// The part of this program that does the step; empty if there is none.
    #[serde(default)]
    by: String,
}

const WIDTH: usize = 214;
const GAP: usize = 30;
const MARGIN: usize = 16;
/// The space between a box and its text.
const PADDING: usize = 14;
const LINE: usize = 19;
/// The widest character of the text, in the widest usual font.
const CHARACTER: usize = 8;

/// The picture.
pub(crate) fn picture(source: &str) -> String {
    let Life { title, steps, detour, tainted, open } = yaml::from_str(source).unwrap();
    let left = |index: usize| MARGIN + index * (WIDTH + GAP);
    let highest = steps.iter().map(|step| height(step, WIDTH)).max().unwrap_or_default();
    let (bands, top) = (MARGIN, MARGIN + 44);
    let bottom = top + highest;
    let (below, wide) = (bottom + 44, 2 * WIDTH + GAP);
    let size = (left(steps.len()) - GAP + MARGIN, below + height(&detour, wide) + MARGIN);
    let mut picture = Picture::new(&title, size);

    let (middle, end) = (left(2) + WIDTH / 2, size.0 - MARGIN);
    for (class, from, to, text) in [("waits", left(1), middle, &tainted), ("works", middle + 6, end, &open)] {
        picture.rectangle(class, (from, bands), (to - from, 28));
        picture.label("ink", (usize::midpoint(from, to), bands + 19), text);
    }
    for (index, step) in steps.iter().enumerate() {
        draw(&mut picture, step, (left(index), top), (WIDTH, highest));
        if index > 0 {
            picture.arrow(&[(left(index) - GAP, top + highest / 2), (left(index), top + highest / 2)]);
        }
    }
    draw(&mut picture, &detour, (left(1), below), (wide, height(&detour, wide)));
    let (down, up) = (left(1) + WIDTH / 2, middle);
    picture.arrow(&[(down, bottom), (down, below)]);
    picture.arrow(&[(up, below), (up, bottom)]);
    picture.text("dim", (down + 10, bottom + 27), "waits");
    picture.text("dim", (up + 10, bottom + 27), "fixed");
    picture.svg()
}

fn lines(step: &Step, width: usize) -> Vec<String> {
    wrap(&step.text, (width - 2 * PADDING) / CHARACTER)
}

fn height(step: &Step, width: usize) -> usize {
    2 * PADDING + (lines(step, width).len() + 2) * LINE + 8
}

fn draw(picture: &mut Picture, step: &Step, (x, y): (usize, usize), size: (usize, usize)) {
    picture.rectangle("box", (x, y), size);
    let x = x + PADDING;
    picture.text("ink bold", (x, y + PADDING + 12), &step.name);
    for (number, line) in lines(step, size.0).iter().enumerate() {
        picture.text("ink", (x, y + PADDING + 38 + number * LINE), line);
    }
    picture.text("mono command", (x, y + size.1 - PADDING), &step.by);
}
