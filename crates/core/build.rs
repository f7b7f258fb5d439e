//! Makes a new file in the embedded folders trigger a rebuild: edits are seen by the compiler, new files are not.

fn main() {
    for folder in ["assets", "bootstrap", "guard", "install", "manifests", "scaffold"] {
        println!("cargo:rerun-if-changed=../../{folder}");
    }
}
