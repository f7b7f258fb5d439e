use std::{fs, process::Command};

use super::{
    tar::{MAX_TAR, sum},
    *,
};
use crate::provider::embedded;

fn embedded(name: &str) -> Package {
    embedded::package(name).unwrap()
}

#[test]
fn every_embedded_provider_survives_packing_and_reading() {
    let names = embedded::names();
    assert!(names.len() > 20);
    for name in names {
        let package = embedded(name);
        let tar = package.tar();
        assert_eq!(Package::from_tar(&tar).unwrap(), package);
        assert_eq!(digest(&tar), package.digest());
        let parsed_providers = package.parsed_providers();
        assert!(
            parsed_providers.iter().all(|parsed| parsed.defects.is_empty() && parsed.misfits().is_empty()),
            "{parsed_providers:?}"
        );
        assert_eq!(parsed_providers.len(), embedded::parsed_providers_of(name).len(), "{name}");
        let texts = package.files().filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok());
        let cost = texts.map(|text| cost(text, MAX_COST)).reduce(Cost::plus).unwrap();
        let fifth = Cost { values: MAX_COST.values / 5, bytes: MAX_COST.bytes / 5, ..MAX_COST };
        assert!(cost.is_within(fifth), "{name}: {cost:?}");
    }
}

#[test]
fn gnu_tar_writes_the_same_bytes() {
    let package = embedded("azure");
    let folder = tempfile::tempdir().unwrap();
    for (path, bytes) in package.files() {
        let path = folder.path().join("azure").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    // GNU tar's --sort=name sorts inside each folder, not the paths.
    let script = "find azure -type f | LC_ALL=C sort | tar --create --format=ustar --owner=0 --group=0 --numeric-owner \
         --mode=0644 --mtime=@0 --blocking-factor=1 --file=azure.tar --files-from=-";
    let status = Command::new("sh").args(["-ec", script]).current_dir(folder.path()).status().unwrap();
    assert!(status.success());
    assert!(fs::read(folder.path().join("azure.tar")).unwrap() == package.tar());
}

#[test]
fn no_flipped_byte_passes_the_pin() {
    let package = embedded::names().into_iter().map(embedded).min_by_key(|package| package.tar().len()).unwrap();
    let (mut tar, pin) = (package.tar(), package.digest());
    for at in 0..tar.len() {
        tar[at] ^= 1;
        assert_ne!(Package::from_tar(&tar).map(|package| package.digest().to_owned()), Ok(pin.to_owned()), "byte {at}");
        tar[at] ^= 1;
    }
    assert_eq!(Package::from_tar(&tar).unwrap().digest(), pin);
}

#[test]
fn a_digest_depends_on_names_and_contents_and_nothing_else() {
    let digest = |name, files: [(&str, &str); 2]| Package::new(name, files).unwrap().digest().to_owned();
    let one = digest("a", [("assets/b.yaml", "x"), ("assets/c.yaml", "y")]);
    assert_eq!(one, digest("a", [("assets/c.yaml", "y"), ("assets/b.yaml", "x")]));
    for other in [
        digest("b", [("assets/b.yaml", "x"), ("assets/c.yaml", "y")]),
        digest("a", [("assets/b.yaml", "y"), ("assets/c.yaml", "x")]),
        digest("a", [("assets/b.yaml", "xy"), ("assets/c.yaml", "")]),
        digest("a", [("assets/b.yaml", "x"), ("bootstrap/c.yaml", "y")]),
    ] {
        assert_ne!(one, other);
    }
}

/// A package with two small files.
fn small() -> Package {
    Package::new("demo", [("README.md", "# Demo\n"), ("assets/a.yaml", "a: 1\n")]).unwrap()
}

/// Its tar with other bytes in the first header, and a correct checksum.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut tar = small().tar();
    tar[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = sum(tar.first_chunk().unwrap());
    tar[148..156].copy_from_slice(sum.as_bytes());
    tar
}

#[test]
fn a_tar_is_refused_for_each_deviation_from_its_only_form() {
    let tar = small().tar();
    assert_eq!(changed(0, b"demo"), tar);
    let (first, second, end) = (&tar[..1024], &tar[1024..2048], &tar[2048..]);
    assert_eq!(end, [0; 1024]);
    let with = |size: &[u8]| changed(124, size);
    for (tar, problem) in [
        (changed(156, b"1"), "demo/README.md: a hard link; pack the"),
        (changed(156, b"2assets/a.yaml"), "demo/README.md: a link; pack the"),
        (changed(156, b"3"), "demo/README.md: a device"),
        (changed(156, b"4"), "demo/README.md: a device"),
        (changed(156, b"5"), "demo/README.md: a folder"),
        (changed(156, b"6"), "demo/README.md: a pipe"),
        (changed(156, b"x"), "demo/README.md: an extension of pax"),
        (changed(156, b"g"), "demo/README.md: an extension of pax"),
        (changed(156, b"L"), "demo/README.md: an extension of GNU tar"),
        (changed(156, b"S"), "demo/README.md: a sparse file"),
        (changed(156, b"\0"), "demo/README.md: of an unknown type"),
        (changed(100, b"0000755"), r#"demo/README.md: its mode is "0000755", not "0000644""#),
        (changed(108, b"0001750"), r#"its owner is "0001750", not "0000000""#),
        (changed(116, b"0001750"), r#"its group is "0001750""#),
        (changed(136, b"15000000000"), r#"its time is "15000000000""#),
        (changed(157, b"x"), r#"its target of a link is "x", not """#),
        (changed(257, b"ustar  \0"), r#"its format is "ustar  ", not "ustar00""#),
        (changed(265, b"root"), r#"its name of the owner is "root", not """#),
        (changed(297, b"root"), r#"its name of the group is "root""#),
        (changed(335, b"1"), r#"its device is "0000001""#),
        (changed(337, b"\0"), r#"its device is "000000", not "0000000""#),
        (changed(345, b"x"), r#"its first part of the path is "x""#),
        (changed(511, b"x"), r#"its padding is "x""#),
        (changed(99, b"x"), r#"its path is "demo/README.mdx", not "demo/README.md""#),
        (with(b"\x80\0\0\0\0\0\0\0\0\0\0\x07"), r"its size \x80 is not 11 octal digits"),
        (with(b"77777777777"), "demo/README.md: 8589934591 bytes; a file of a package may have 1048576"),
        (with(b"00004000001"), "demo/README.md: 1048577 bytes"),
        (with(b"00004000000"), "demo/README.md: cut off: it has 1048576 bytes"),
        (with(b"+0000000007"), r#"its size is "+0000000007", not "00000000007""#),
        (with(b"       0007"), "is not 11 octal digits"),
        (with(b"00000000008"), "its size 00000000008 is not 11 octal digits"),
        (with(b"00000000006"), "demo/README.md: has bytes after its end"),
        (changed(0, b"/emo"), "/emo/README.md: an absolute path"),
        (changed(0, b"../x"), "../x/README.md: a path with . or .."),
        (changed(0, b"de/."), "de/./README.md: a path with . or .."),
        (changed(0, b"demo-README.md"), "demo-README.md: not in a folder"),
        (changed(0, b"dem/"), "demo/assets/a.yaml: in another folder than dem//README.md"),
        (changed(0, b"demo/NOTICE.md"), "NOTICE.md: unknown file"),
        (changed(0, b"dem\xff"), r"dem\xff/README.md: its path is not UTF-8"),
        (changed(0, &[0; 100]), ": not in a folder"),
        ([&[0; 148], &tar[148..]].concat(), "its size  is not 11 octal digits"),
        ([&tar[..148], b"000000", &tar[154..]].concat(), r#"its checksum is "000000 ", not ""#),
        ([first, first, end].concat(), "demo/README.md: there twice"),
        ([second, first, end].concat(), "demo/README.md: not in the order of paths: it comes after demo/assets/a.yaml"),
        ([first, end].concat(), "demo: has no file assets/*.yaml"),
        ([first, second].concat(), "tar: cut off"),
        ([first, second, &end[..512]].concat(), "tar: ends with 512 zeros, not 1024"),
        ([first, second, end, end].concat(), "tar: ends with 2048 zeros, not 1024"),
        ([first, second, end, b"\0"].concat(), "tar: ends with 1025 zeros"),
        ([first, second, end, b"x"].concat(), "tar: has bytes after its end"),
        ([first, second, &end[..512], first].concat(), "tar: has bytes after its end"),
        ([first, &second[..700]].concat(), "demo/assets/a.yaml: cut off: it has 5 bytes"),
        (first[..100].to_vec(), "tar: cut off"),
        (Vec::new(), "tar: cut off"),
        (end.to_vec(), "tar: has no file"),
        (b"\x1f\x8b\x08".to_vec(), "tar: compressed with gzip: give the tar itself"),
        (b"\x28\xb5\x2f\xfd".to_vec(), "tar: compressed with zstd"),
        (b"\xfd7zXZ\0".to_vec(), "tar: compressed with xz"),
        (b"BZh9".to_vec(), "tar: compressed with bzip2"),
        (b"apiVersion: v1\n".to_vec(), "tar: a text, such as a manifest: give the provider's folder"),
        (vec![0; usize::try_from(MAX_TAR).unwrap() + 1], "bytes; the tar of a package may have"),
    ] {
        let refused = Package::from_tar(&tar).expect_err(problem).to_string();
        assert!(refused.contains(problem), "{refused}\nis not {problem}");
    }
}

#[test]
fn a_package_is_refused_for_each_limit_and_name() {
    let long = "a".repeat(MAX_NAME);
    let path = |length: usize| format!("assets/{}.yaml", "x".repeat(length - "demo/assets/.yaml".len()));
    let package = |name: &str, files: &[(&str, usize)]| {
        Package::new(name, files.iter().map(|(path, size)| (*path, vec![b'#'; *size]))).map(|_| ())
    };
    let most = usize::try_from(MAX_FILE).unwrap();
    let many: Vec<_> = (0..=MAX_FILES).map(|n| format!("assets/{n}.yaml")).collect();
    let many: Vec<_> = many.iter().map(|path| (path.as_str(), 0)).collect();
    let large: Vec<_> = many.iter().take(9).map(|(path, _)| (*path, most)).collect();
    let (fits, too_long) = (path(MAX_PATH), path(MAX_PATH + 1));
    for (name, files) in [
        ("demo", &[("README.md", most), ("assets/kubernetes/a.yaml", 0), ("bootstrap/B_2.x.yaml", 0)][..]),
        (&long, &[("assets/a.yaml", 0)]),
        ("demo", &[(&fits, 0)]),
        ("demo", &many[..MAX_FILES]),
        ("demo", &large[..8]),
    ] {
        assert_eq!(package(name, files), Ok(()));
    }
    let one = [("assets/a.yaml", 0)];
    let dotted = "the name of a file may have";
    for (name, files, problem) in [
        ("", &one[..], "not the name of a provider"),
        ("Demo", &one, "Demo: not the name of a provider"),
        ("de_mo", &one, "not the name of a provider"),
        ("-demo", &one, "not the name of a provider"),
        ("demo-", &one, "not the name of a provider"),
        ("de.mo", &one, "not the name of a provider"),
        ("..", &one, "not the name of a provider"),
        ("de\u{1b}mo", &one, r"de\u{1b}mo: not the name of a provider"),
        (&format!("{long}a"), &one, "not the name of a provider"),
        ("demo", &[], "demo: has no file assets/*.yaml"),
        ("demo", &[("README.md", 0), ("bootstrap/a.yaml", 0)], "demo: has no file assets/*.yaml"),
        ("demo", &[("assets/a.yaml", 0), ("assets/a.yaml", 1)], "assets/a.yaml: given twice"),
        ("demo", &[("assets/a.yml", 0)], "assets/a.yml: unknown file"),
        ("demo", &[("assets/.a.yaml.swp", 0)], "assets/.a.yaml.swp: unknown file"),
        ("demo", &[(".git/HEAD", 0)], ".git/HEAD: unknown file"),
        ("demo", &[(".DS_Store", 0)], ".DS_Store: unknown file"),
        ("demo", &[("provider.yaml", 0)], "provider.yaml: unknown file"),
        ("demo", &[("readme.md", 0)], "readme.md: unknown file"),
        ("demo", &[("assets/README.md", 0)], "assets/README.md: unknown file"),
        ("demo", &[("assets/openshift/a.yaml", 0)], "assets/openshift/a.yaml: unknown file"),
        ("demo", &[("assets/kubernetes/x/a.yaml", 0)], "unknown file"),
        ("demo", &[("bootstrap/kubernetes/a.yaml", 0)], "unknown file"),
        ("demo", &[("assets/../a.yaml", 0)], "unknown file"),
        ("demo", &[("/assets/a.yaml", 0)], "unknown file"),
        ("demo", &[("assets/\u{1b}.txt", 0)], r"assets/\u{1b}.txt: unknown file"),
        ("demo", &[("assets/.yaml", 0)], "unknown file"),
        ("demo", &[("assets/.a.yaml", 0)], dotted),
        ("demo", &[("assets/a b.yaml", 0)], dotted),
        ("demo", &[("assets/\u{e4}.yaml", 0)], dotted),
        ("demo", &[("assets/a\\b.yaml", 0)], dotted),
        ("demo", &[(&too_long, 0)], "101 bytes long with the provider's name; it may be 100"),
        ("demo", &[("assets/a.yaml", most + 1)], "assets/a.yaml: 1048577 bytes; a file of a package may have 1048576"),
        ("demo", &many, "assets/256.yaml: one file too many: a package may have 256"),
        ("demo", &large, "assets/8.yaml: with it the package has 9437184 bytes; it may have 8388608"),
    ] {
        let refused = package(name, files).expect_err(problem).to_string();
        assert!(refused.contains(problem), "{refused}\nis not {problem}");
    }
}

#[test]
fn yaml_that_grows_when_it_is_read_is_refused() {
    let text = "x".repeat(1 << 18);
    let level = |n: usize| format!("l{}: &l{} [{}]\n", n + 1, n + 1, vec![format!("*l{n}"); 10].join(","));
    let laughs = format!("l0: &l0 ha\n{}", (0..9).map(level).collect::<String>());
    for (yaml, is_refused) in [
        (laughs, true),
        (format!("a: &a {text}\nb: [{}]\n", ["*a"; 20].join(",")), true),
        (format!("%TAG !e! {}\n---\n[{}]\n", &text[..1000], vec!["!e!x 1"; 9_000].join(",")), true),
        (format!("{}x{}", "&a [".repeat(50), "]".repeat(50)), false),
        ("- {a: 1}\n".repeat(10_000), true),
        ("---\na\n".repeat(15_000), true),
        ("- {a: 1}\n".repeat(4_000), false),
        (format!("a: &a {text}\nb: [*a, *a]\n"), false),
    ] {
        let package = Package::new("demo", [("assets/a.yaml", yaml.as_bytes()), ("README.md", yaml.as_bytes())]);
        let beginning: String = yaml.chars().take(20).collect();
        match package {
            Ok(package) => {
                let parsed_providers = package.parsed_providers();
                assert!(!is_refused && parsed_providers.len() == 1, "{beginning}: {:?}", parsed_providers[0].defects);
            }
            Err(error) => assert!(is_refused && error.to_string().contains("20000 values, "), "{beginning}: {error}"),
        }
    }
    // Each file is within the limit.
    let half = "- {a: 1}\n".repeat(4_000);
    let error = Package::new("demo", [("assets/a.yaml", half.as_bytes()), ("bootstrap/a.yaml", half.as_bytes())]);
    assert!(error.unwrap_err().to_string().starts_with("bootstrap/a.yaml: with it the package has more than 20000"));
}

/// The files of a layout, by path.
type Files = BTreeMap<String, Vec<u8>>;

fn from(files: &Files) -> Result<(Package, String), Error> {
    Package::from_oci_layout(|path, _| files.get(path).cloned().ok_or_else(|| Error::new(path, None, "missing")))
}

#[test]
fn the_layout_of_an_image_is_read_and_each_of_its_blobs_is_checked() {
    let layout = small().oci_layout();
    assert_eq!(layout, small().oci_layout());
    let mut files: Files = layout.files.clone().into_iter().collect();
    assert_eq!(from(&files).unwrap(), (small(), layout.digest.clone()));
    let paths: Vec<_> = files.keys().cloned().collect();
    assert_eq!(paths.len(), 5);
    for path in paths {
        for at in 0..files[&path].len() {
            files.get_mut(&path).unwrap()[at] ^= 1;
            let read = from(&files);
            assert!(!path.starts_with("blobs/") || read.is_err(), "{path}, byte {at}");
            if let Ok((package, digest)) = read {
                assert_eq!((&package, &digest), (&small(), &layout.digest), "{path}, byte {at}");
            }
            files.get_mut(&path).unwrap()[at] ^= 1;
        }
    }
}

/// The small package's layout with a text of its manifest, or else of its index, replaced. The digests are right.
fn replaced(from: &str, to: &str) -> Files {
    let layout = small().oci_layout();
    let path = format!("blobs/{}", layout.digest.replace(':', "/"));
    let mut files: Files = layout.files.into_iter().collect();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (manifest, index) = (text(&files[&path]), text(&files["index.json"]));
    if !manifest.contains(from) {
        assert!(index.contains(from), "{from}");
        files.insert("index.json".to_owned(), index.replacen(from, to, 1).into_bytes());
        return files;
    }
    let changed = manifest.replacen(from, to, 1).into_bytes();
    let new = digest(&changed);
    let size = |bytes: usize| format!("\"size\":{bytes}");
    let index = index.replace(&layout.digest, &new).replace(&size(manifest.len()), &size(changed.len()));
    files.insert("index.json".to_owned(), index.into_bytes());
    files.insert(format!("blobs/{}", new.replace(':', "/")), changed);
    files
}

#[test]
fn an_image_is_refused_for_each_deviation() {
    let package = small();
    let layer = package.digest();
    let hex = layer.strip_prefix("sha256:").unwrap();
    let tar = small().tar().len();
    let blob = |media_type: &str| format!("{{\"mediaType\":\"{media_type}\",\"digest\":\"{layer}\",\"size\":{tar}}}");
    let ours = blob("application/vnd.oci.image.layer.v1.tar");
    for (from_text, to, problem) in [
        (
            "manifest.v1+json\",\"config",
            "index.v1+json\",\"config",
            "media type \"application/vnd.oci.image.index.v1+json\"",
        ),
        (
            "\"manifests\":[",
            "\"manifests\":[],\"x\":[",
            "index.json: 0 manifests; the image of a package has one manifest",
        ),
        (
            "image.index.v1",
            "image.manifest.v1",
            "index.json: media type \"application/vnd.oci.image.manifest.v1+json\", not",
        ),
        (
            "\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\"",
            "\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.index.v1+json\"",
            "index.json: media type \"application/vnd.oci.image.index.v1+json\"",
        ),
        (&ours, &format!("{ours},{ours}"), "2 layers; the image of a package has one layer"),
        (&ours, "", "0 layers"),
        ("layer.v1.tar", "layer.v1.tar+gzip", "it is compressed; give the layer as it is"),
        ("layer.v1.tar", "layer.v1.tar+zstd", "it is compressed"),
        ("application/vnd.oci.image.layer.v1.tar", "application/x", "media type \"application/x\", not"),
        (layer, &format!("sha512:{hex}"), "is not sha256: and 64 hexadecimal digits"),
        (layer, "sha256:../../index.json", "digest \"sha256:../../index.json\" is not sha256"),
        (layer, &layer.to_uppercase(), "is not sha256"),
        (layer, &format!("sha256:{}", "0".repeat(64)), "missing"),
        (
            &format!("{tar}}}]"),
            &format!("{}}}]", tar + 1),
            &format!("{tar} bytes with digest {layer}; it must have {}", tar + 1),
        ),
        (&format!("{tar}}}]"), "9000000}]", "9000000 bytes; it may have"),
        (&format!("{tar}}}]"), "-1}]", "not a document of an OCI image: invalid value"),
        ("\"schemaVersion\":2", "\"schemaVersion\":[", "not a document of an OCI image"),
    ] {
        let refused = from(&replaced(from_text, to)).expect_err(problem).to_string();
        assert!(refused.contains(problem), "{refused}\nis not {problem}");
    }
    let with = |path: &str, text: &str| {
        let mut files: Files = small().oci_layout().files.into_iter().collect();
        files.insert(path.to_owned(), text.as_bytes().to_vec());
        from(&files).unwrap_err().to_string()
    };
    let version = with("oci-layout", "{\"imageLayoutVersion\":\"2.0.0\"}");
    assert_eq!(version, "oci-layout: version \"2.0.0\" of the layout, not \"1.0.0\"");
    assert!(with("index.json", &"[".repeat(100_000)).starts_with("index.json: not a document of an OCI image"));
    let media_type = format!("\"{}\"", "x".repeat(10_000));
    let long = from(&replaced("\"application/vnd.oci.image.layer.v1.tar\"", &media_type)).unwrap_err().to_string();
    assert!(long.len() < 600, "{long}");
}
