use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener},
    process::Command,
    thread,
};

use tempfile::TempDir;

use super::*;
use crate::error::chain;

const FILES: [(&str, &str); 4] = [
    ("README.md", "# Demo\n"),
    ("assets/a.yaml", "a: 1\n"),
    ("assets/kubernetes/b.yaml", "b: 1\n"),
    ("bootstrap/c.yaml", "c: 1\n"),
];

fn package() -> Package {
    Package::new("demo", FILES).unwrap()
}

fn write(folder: &Path) {
    for (path, text) in FILES {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// The folder `demo` with its files, in a parent folder that is removed at the end.
fn demo() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    write(&demo);
    (folder, demo)
}

fn refused(path: &Path) -> String {
    chain(&read(path).unwrap_err())
}

#[test]
fn a_folder_its_tar_and_its_image_hold_the_same_package() {
    let (folder, demo) = demo();
    let loaded = read(&demo).unwrap();
    assert_eq!(
        (&loaded.package, &loaded.digest, loaded.form),
        (&package(), &package().digest().to_owned(), PackageFormat::Folder)
    );
    for path in [folder.path().join("demo/../demo/."), demo.join("assets/..")] {
        assert_eq!(read(&path).unwrap().digest, loaded.digest, "{}", path.display());
    }
    let tar = folder.path().join("demo.tar");
    fs::write(&tar, package().tar()).unwrap();
    let loaded = read(&tar).unwrap();
    assert_eq!(
        (&loaded.package, &loaded.digest, loaded.form),
        (&package(), &package().digest().to_owned(), PackageFormat::Tar)
    );
    let layout = package().oci_layout();
    let image = folder.path().join("image/demo");
    for (path, bytes) in &layout.files {
        let path = image.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let loaded = read(&image).unwrap();
    assert_eq!((&loaded.package, &loaded.digest, loaded.form), (&package(), &layout.digest, PackageFormat::Layout));
    // A given path may contain links, because it comes from the user or the kubelet.
    let link = folder.path().join("links/demo");
    fs::create_dir(folder.path().join("links")).unwrap();
    symlink(&demo, &link).unwrap();
    assert_eq!(read(&link).unwrap().package, package());
}

#[test]
fn a_layout_has_nothing_beside_its_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("demo");
    let put = |path: &str, bytes: &[u8]| {
        let path = image.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for (path, bytes) in package().oci_layout().files {
        put(&path, &bytes);
    }
    let unused = format!("blobs/sha256/{}", "0".repeat(64));
    for (extra, named) in [
        ("README.md", "README.md"),
        ("assets/a.yaml", "assets"),
        (".git/config", ".git"),
        (unused.as_str(), unused.as_str()),
        ("blobs/sha512/x", "blobs/sha512"),
        ("blobs/x", "blobs/x"),
        ("index.json~", "index.json~"),
    ] {
        put(extra, b"x");
        let error = refused(&image);
        assert!(error.contains(&format!("{named}: not a part of the image")), "{extra}: {error}");
        let top = image.join(named);
        if top.is_dir() {
            fs::remove_dir_all(top).unwrap();
        } else {
            fs::remove_file(top).unwrap();
        }
        assert_eq!(read(&image).unwrap().form, PackageFormat::Layout);
    }
    symlink("index.json", image.join("assets")).unwrap();
    assert!(refused(&image).contains("assets: not a part of the image"));
}

#[test]
fn the_name_inside_is_the_name_outside() {
    let (folder, demo) = demo();
    let tar = folder.path().join("other.tar");
    fs::write(&tar, package().tar()).unwrap();
    let error = refused(&tar);
    assert!(
        error.ends_with(
            "other.tar is not a package of a provider: other: it holds the provider \"demo\"; give it the same name"
        ),
        "{error}"
    );
    let image = folder.path().join("image");
    for (path, bytes) in package().oci_layout().files {
        let path = image.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    assert!(refused(&image).contains("image: it holds the provider \"demo\""));
    let renamed = folder.path().join("De mo");
    fs::rename(demo, &renamed).unwrap();
    assert!(refused(&renamed).contains("De mo: not the name of a provider"));
    assert!(refused(Path::new("/")).contains("it has no name"));
    assert!(refused(&folder.path().join("missing")).contains("No such file or directory"));
}

#[test]
fn a_folder_is_refused_for_each_entry_that_is_not_a_file_of_a_provider() {
    type Make = fn(&Path);
    for (make, problem) in [
        (
            (|demo| symlink("a.yaml", demo.join("assets/link.yaml")).unwrap()) as Make,
            "assets/link.yaml: a link; put the file itself in its place",
        ),
        (|demo| symlink("/etc/passwd", demo.join("assets/out.yaml")).unwrap(), "assets/out.yaml: a link"),
        (|demo| symlink("missing", demo.join("assets/dangling.yaml")).unwrap(), "assets/dangling.yaml: a link"),
        (
            |demo| {
                fs::rename(demo.join("assets"), demo.join("../elsewhere")).unwrap();
                symlink("../elsewhere", demo.join("assets")).unwrap();
            },
            "demo/assets: a link",
        ),
        (
            |demo| assert!(Command::new("mkfifo").arg(demo.join("assets/pipe.yaml")).status().unwrap().success()),
            "assets/pipe.yaml: a pipe, not a regular file",
        ),
        (
            |demo| drop(UnixListener::bind(demo.join("assets/socket.yaml")).unwrap()),
            "assets/socket.yaml: a socket, not a regular file",
        ),
        (|demo| fs::create_dir(demo.join("assets/folder.yaml")).unwrap(), "assets/folder.yaml: is a directory"),
        (
            |demo| {
                fs::remove_dir_all(demo.join("bootstrap")).unwrap();
                fs::write(demo.join("bootstrap"), "").unwrap();
            },
            "demo/bootstrap: not a directory",
        ),
        (|demo| fs::create_dir(demo.join(".git")).unwrap(), "demo is not a package of a provider: .git: unknown file"),
        (|demo| fs::write(demo.join("assets/.a.yaml.swp"), "").unwrap(), "assets/.a.yaml.swp: unknown file"),
        (|demo| fs::write(demo.join(".DS_Store"), "").unwrap(), ".DS_Store: unknown file"),
        (|demo| fs::write(demo.join("assets/a.yaml~"), "").unwrap(), "assets/a.yaml~: unknown file"),
        (|demo| fs::create_dir(demo.join("manifests")).unwrap(), "manifests: unknown file"),
        (
            |demo| fs::write(demo.join(std::ffi::OsStr::from_bytes(b"assets/\xff.yaml")), "").unwrap(),
            r#"assets: the name "\xff.yaml" of one of its files is not UTF-8"#,
        ),
        (
            |demo| fs::File::create(demo.join("assets/large.yaml")).unwrap().set_len(1 << 40).unwrap(),
            "assets/large.yaml: 1099511627776 bytes; a file of a package may have 1048576",
        ),
        (
            |demo| (0..10).for_each(|n| fs::write(demo.join(format!("assets/{n}.yaml")), vec![b'#'; 1 << 20]).unwrap()),
            "bytes; it may have 8388608",
        ),
        (
            |demo| (0..253).for_each(|n| fs::write(demo.join(format!("assets/{n}.yaml")), "").unwrap()),
            "one file too many",
        ),
        (
            |demo| (0..10_000).for_each(|n| fs::write(demo.join(format!("assets/{n}.yaml")), "").unwrap()),
            "demo/assets: it has more than 264 files",
        ),
        (|demo| fs::remove_dir_all(demo.join("assets")).unwrap(), "demo: has no file assets/*.yaml"),
    ] {
        let (_folder, demo) = demo();
        make(&demo);
        let error = refused(&demo);
        assert!(error.contains(problem), "{error}\nis not {problem}");
    }
}

#[test]
fn what_is_given_is_a_folder_or_a_regular_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("demo.tar");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(refused(&pipe).contains("a pipe, not a regular file"));
    assert!(refused(Path::new("/dev/zero")).contains("a device, not a regular file"));
    let large = folder.path().join("large.tar");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    assert!(refused(&large).contains("1099511627776 bytes; the tar of a package may have"));
}

#[test]
fn a_file_that_is_swapped_after_it_was_opened_is_not_read() {
    let (folder, demo) = demo();
    let path = demo.join("assets/a.yaml");
    let Opened::Folder(opened) = open(&demo.join("assets")).unwrap() else { panic!("a folder") };
    let file = opened.file("a.yaml").unwrap();
    fs::write(folder.path().join("other"), "other: 1\n").unwrap();
    fs::rename(folder.path().join("other"), &path).unwrap();
    assert_eq!(file.read().unwrap(), b"a: 1\n");
    // The folder itself is swapped.
    fs::rename(demo.join("assets"), demo.join("before")).unwrap();
    fs::create_dir(demo.join("assets")).unwrap();
    fs::write(&path, "third: 1\n").unwrap();
    assert_eq!(opened.file("a.yaml").unwrap().read().unwrap(), b"other: 1\n");
}

#[test]
fn a_file_that_grows_while_it_is_read_is_refused() {
    let (_folder, demo) = demo();
    let Opened::File(file) = open(&demo.join("README.md")).unwrap() else { panic!("a file") };
    fs::write(demo.join("README.md"), "# A longer text\n").unwrap();
    assert!(chain(&file.read().unwrap_err()).ends_with("it changed while it was read; retry"));
}

#[test]
fn the_bytes_that_are_used_are_those_that_were_hashed() {
    let (_folder, demo) = demo();
    let loaded = read(&demo).unwrap();
    fs::write(demo.join("assets/a.yaml"), "other: 1\n").unwrap();
    assert_ne!(read(&demo).unwrap().digest, loaded.digest);
    assert_eq!(crate::provider::package::digest(&loaded.package.tar()), loaded.digest);
    let parsed_providers = loaded.package.parsed_providers();
    assert_eq!(parsed_providers[0].files["assets/a.yaml"], b"a: 1\n");
}

/// Writes these files as the kubelet mounts a ConfigMap: in a dated folder, with links.
fn mount(folder: &Path, dated: &str) {
    write(&folder.join(dated));
    let next = folder.join("..data_tmp");
    symlink(dated, &next).unwrap();
    fs::rename(next, folder.join(DATA)).unwrap();
    for name in ["README.md", "assets", "bootstrap"] {
        let _ = symlink(format!("{DATA}/{name}"), folder.join(name));
    }
}

#[test]
fn a_mounted_config_map_is_read_behind_the_kubelets_link() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    mount(&demo, "..2026_01_31_12_00_00.1");
    assert_eq!(read(&demo).unwrap().package, package());
    // A tar, and a folder below the mount, are links there.
    fs::write(demo.join("..data/demo.tar"), package().tar()).unwrap();
    symlink("..data/demo.tar", demo.join("demo.tar")).unwrap();
    assert_eq!(read(&demo.join("demo.tar")).unwrap().package, package());
    fs::remove_file(demo.join("demo.tar")).unwrap();
    assert!(refused(&demo).contains("demo.tar: unknown file"));
}

#[test]
fn no_other_link_of_a_mount_is_followed() {
    type Make = fn(&Path);
    for (make, problem) in [
        (
            (|demo| fs::write(demo.join("more.yaml"), "").unwrap()) as Make,
            "more.yaml: unknown file: beside the link ..data there are only links into it",
        ),
        (|demo| symlink("..data/a.yaml", demo.join("b.yaml")).unwrap(), "b.yaml: unknown file"),
        (|demo| symlink("../README.md", demo.join("..data/assets/out.yaml")).unwrap(), "assets/out.yaml: a link"),
        (|demo| replace(demo, ".."), "..data: leads to \"..\", not to one of the kubelet's folders beside it"),
        (|demo| replace(demo, "../demo/..1"), "..data: leads to \"../demo/..1\""),
        (|demo| replace(demo, "/etc"), "..data: leads to \"/etc\""),
        (|demo| replace(demo, "assets"), "..data: leads to \"assets\""),
        (|demo| replace(demo, "..2"), "..data: leads to \"..2\""),
        (
            |demo| {
                symlink("..1", demo.join("..3")).unwrap();
                replace(demo, "..3");
            },
            "..3: a link",
        ),
        (
            |demo| {
                fs::remove_file(demo.join(DATA)).unwrap();
                fs::rename(demo.join("..1"), demo.join(DATA)).unwrap();
            },
            "..data: unknown file",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let demo = folder.path().join("demo");
        mount(&demo, "..1");
        make(&demo);
        let error = refused(&demo);
        assert!(error.contains(problem), "{error}\nis not {problem}");
    }
}

fn replace(demo: &Path, target: &str) {
    fs::remove_file(demo.join(DATA)).unwrap();
    symlink(target, demo.join(DATA)).unwrap();
}

/// Swaps far more often than the kubelet does.
#[test]
fn a_mount_that_is_swapped_while_it_is_read_gives_whole_packages_only() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    mount(&demo, "..0");
    thread::scope(|scope| {
        let kubelet = scope.spawn(|| {
            for at in 0..300 {
                mount(&demo, &format!("..{}", at + 1));
                // Removes them in two steps, so that a part of them exists.
                fs::remove_file(demo.join(format!("..{at}/README.md"))).unwrap();
                thread::yield_now();
                fs::remove_dir_all(demo.join(format!("..{at}"))).unwrap();
            }
        });
        let mut whole = 0;
        while !kubelet.is_finished() {
            match read(&demo) {
                Ok(loaded) => {
                    assert_eq!(loaded.package, package());
                    whole += 1;
                }
                Err(error) => {
                    assert!(chain(&error).contains("it leads to other files each time"), "{}", chain(&error));
                }
            }
        }
        assert!(whole > 0);
    });
}
