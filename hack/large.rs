//! Large configurations, for the tests and the benchmark, and the processor time that they take.

use ccm_operator::{config::Transform, facts::Facts, text::mask};

/// Works on a text, which it may refuse.
type Work = fn(&str);

/// A kind of large configuration: its name, the text before, a piece that is repeated with `#` as a number (or two pieces
/// with `|` between them, each for one half), the text behind, and the work.
type Shape = (&'static str, &'static str, &'static str, &'static str, Work);

const VSPHERE: &str = "global: {user: a, password: b}\nvcenter:\n  a: {server: a}\n";

/// Every kind of text whose work has once grown with the square of its length, and what is like it.
pub(crate) const SHAPES: &[Shape] = &[
    ("AWS, a key that is set repeatedly", "[Global]\n", "NLBSecurityGroupMode=a\n", "", aws),
    ("AWS, overrides", "", "[ServiceOverride \"#\"]\nService=a\nRegion=#\nURL=a\nSigningRegion=a\n", "", aws),
    ("OpenStack, a key that is removed", "[Global]\n", "secret-name=\n", "", openstack),
    ("OpenStack, a section that is removed", "", "[BlockStorage]\na=b\n", "", openstack),
    ("OpenStack, sections", "", "[LoadBalancer]\n", "", openstack),
    ("OpenStack, unknown keys", "[Global]\n", "key-#=a\n", "", openstack),
    ("Azure, names given repeatedly", "{\"a\":1", ",\"tags\":\"\"|,\"vmType\":\"\"", "}", azure),
    ("Azure, unknown names", "{\"a\":1", ",\"name#\":\"\"", "}", azure),
    (
        "vSphere, wrong types",
        "global: {user: a, password: b}\nvcenter:\n  a: {server: a}\nloadBalancerClass:\n",
        "  c#: {ipPoolName: []}\n",
        "",
        vsphere,
    ),
    ("vSphere, unknown keys", VSPHERE, "key#: a\n", "", vsphere),
    ("vSphere, vCenters", VSPHERE, "  a#: {server: a#, datacenters: [a]}\n", "", vsphere),
    ("vSphere, the legacy INI", "", "[VirtualCenter \"a#\"]\nuser=a\npassword=b\n", "", vsphere),
    ("masked YAML", "", "a#: {b: &a# c, password: *a#}\n# password: d\n", "", masked),
    ("masked INI", "[Global]\n", "password = a\n; b = \"c\n", "", masked),
    ("masked JSON", "{\"a\": 1", ", \"b#\": {\"password\": [\"c\"]}", "}", masked),
    ("masked text on one line", "x: [", "://a:b ?token=c password \\\" { ", "", masked),
    ("masked text, one long word", "", "a-", "", masked),
    ("masked text on lines", "x: [\n", "'password: \"a\n  b\n-----BEGIN \n", "", masked),
];

/// A configuration of at least this many bytes.
pub(crate) fn text((_, before, piece, behind, _): &Shape, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 256);
    text += before;
    let mut number = 0;
    let halves = piece.split_once('|').unwrap_or((piece, piece));
    for (piece, bytes) in [(halves.0, bytes / 2), (halves.1, bytes)] {
        while text.len() + behind.len() < bytes {
            number += 1;
            text += &piece.replace('#', &number.to_string());
        }
    }
    text + behind
}

/// The processor time of this thread for the work on a text, in seconds.
pub(crate) fn seconds(shape: &Shape, text: &str) -> f64 {
    let before = thread_seconds();
    (shape.4)(text);
    thread_seconds() - before
}

fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to the structure and nothing else.
    #[allow(unsafe_code, reason = "the standard library has no clock of processor time")]
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "no clock of processor time");
    #[allow(clippy::cast_precision_loss, reason = "a difference is taken")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

fn aws(text: &str) {
    let facts = Facts { feature_gates: vec!["AWSServiceLBNetworkSecurityGroup".into()], ..Facts::default() };
    let _ = Transform::Aws.apply(text, &facts);
}

fn azure(text: &str) {
    let _ = Transform::AzureStack.apply(text, &Facts::default());
}

fn openstack(text: &str) {
    let _ = Transform::OpenStack.apply(text, &Facts::default());
}

fn vsphere(text: &str) {
    let _ = Transform::VSphere.apply(text, &Facts::default());
}

fn masked(text: &str) {
    let _ = mask::text(text);
}
