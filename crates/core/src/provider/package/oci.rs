//! A package as the layout of an OCI image (pure): one manifest with one layer, which is the canonical tar, uncompressed.
//!
//! The pin is the manifest's digest. It names the digests of the configuration and the layer, and each is checked.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Package, digest, tar};
use crate::provider::Error;

/// The file that marks a layout.
pub(super) const MARK: &str = "oci-layout";

const INDEX_FILE: &str = "index.json";
const VERSION: &str = "1.0.0";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The largest document. Registries refuse manifests of more than 4 MiB; a manifest with one layer has a few hundred bytes.
const MAX_DOCUMENT: u64 = 256 << 10;

/// An image as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The digest of its manifest.
    pub digest: String,
    /// Its files, by path.
    pub files: Vec<(String, Vec<u8>)>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    image_layout_version: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u8,
    #[serde(default)]
    media_type: Option<String>,
    manifests: Vec<Blob>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u8,
    #[serde(default)]
    media_type: Option<String>,
    config: Blob,
    layers: Vec<Blob>,
}

/// A reference to a file by its digest.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob {
    media_type: String,
    digest: String,
    size: u64,
}

/// The parts of an image that a container runtime needs to mount it. The platform is not checked for an image without alternatives.
#[derive(Serialize)]
struct Config<'a> {
    architecture: &'a str,
    os: &'a str,
    rootfs: RootFs<'a>,
}

#[derive(Serialize)]
struct RootFs<'a> {
    r#type: &'a str,
    diff_ids: [&'a str; 1],
}

/// Serializes a document. These types have neither maps nor floats, so this cannot fail.
fn json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).unwrap_or_default()
}

impl Package {
    /// Reads the package from the layout of an image, and the digest of its manifest. `file` gets the path of a file and the
    /// most bytes that it may have.
    pub fn from_oci_layout<E: From<Error>>(
        mut file: impl FnMut(&str, u64) -> Result<Vec<u8>, E>,
    ) -> Result<(Self, String), E> {
        let mark: Mark = parse(MARK, &file(MARK, MAX_DOCUMENT)?)?;
        if mark.image_layout_version != VERSION {
            let problem = format!("version {:?} of the layout, not {VERSION:?}", begin(&mark.image_layout_version));
            return Err(Error::new(MARK, None, problem).into());
        }
        let index: Index = parse(INDEX_FILE, &file(INDEX_FILE, MAX_DOCUMENT)?)?;
        check_type(INDEX_FILE, INDEX, index.media_type.as_deref())?;
        let entry = only(INDEX_FILE, "manifest", &index.manifests)?;
        check_type(INDEX_FILE, MANIFEST, Some(&entry.media_type))?;
        let mut blob = |from: &str, blob: &Blob, largest| {
            let path = checked_path(from, &blob.digest)?;
            if blob.size > largest {
                return Err(Error::new(&path, None, format!("{} bytes; it may have {largest}", blob.size)).into());
            }
            let bytes = file(&path, blob.size)?;
            let (size, found) = (bytes.len() as u64, digest(&bytes));
            if size != blob.size || found != blob.digest {
                let problem = format!("{size} bytes with digest {found}; it must have {}", blob.size);
                return Err(Error::new(&path, None, problem).into());
            }
            Ok::<_, E>((path, bytes))
        };
        let (path, bytes) = blob(INDEX_FILE, entry, MAX_DOCUMENT)?;
        let manifest: Manifest = parse(&path, &bytes)?;
        check_type(&path, MANIFEST, manifest.media_type.as_deref())?;
        blob(&path, &manifest.config, MAX_DOCUMENT)?;
        let layer = only(&path, "layer", &manifest.layers)?;
        check_type(&path, LAYER, Some(&layer.media_type))?;
        let package = Self::from_tar(&blob(&path, layer, tar::MAX_TAR)?.1)?;
        Ok((package, entry.digest.clone()))
    }

    /// Returns the layout of an image with the package, for copying to a registry.
    pub fn oci_layout(&self) -> Layout {
        let mut files = Vec::new();
        let mut add = |media_type: &str, bytes: Vec<u8>| {
            let blob = Blob { media_type: media_type.to_owned(), digest: digest(&bytes), size: bytes.len() as u64 };
            files.push((path_of(&blob.digest), bytes));
            blob
        };
        let layer = add(LAYER, self.tar());
        let rootfs = RootFs { r#type: "layers", diff_ids: [&layer.digest] };
        let config = add(CONFIG, json(&Config { architecture: "amd64", os: "linux", rootfs }));
        let media_type = Some(MANIFEST.to_owned());
        let manifest = add(MANIFEST, json(&Manifest { schema_version: 2, media_type, config, layers: vec![layer] }));
        let digest = manifest.digest.clone();
        let index = Index { schema_version: 2, media_type: Some(INDEX.to_owned()), manifests: vec![manifest] };
        files.push((INDEX_FILE.to_owned(), json(&index)));
        files.push((MARK.to_owned(), json(&Mark { image_layout_version: VERSION.to_owned() })));
        Layout { digest, files }
    }
}

fn parse<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, Error> {
    let problem = |error: serde_json::Error| format!("not a document of an OCI image: {}", begin(&error.to_string()));
    serde_json::from_slice(bytes).map_err(|error| Error::new(file, None, problem(error)))
}

/// Returns the beginning of an untrusted text.
fn begin(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Returns the only entry. Fails if there is not exactly one.
fn only<'a>(file: &str, what: &str, all: &'a [Blob]) -> Result<&'a Blob, Error> {
    if let [only] = all {
        return Ok(only);
    }
    let problem = format!("{} {what}s; the image of a package has one {what}", all.len());
    Err(Error::new(file, None, problem))
}

/// Checks the type of a document, if it is given.
fn check_type(file: &str, expected: &str, found: Option<&str>) -> Result<(), Error> {
    let found = found.unwrap_or(expected);
    if found == expected {
        return Ok(());
    }
    let fix = if found.contains("zip") || found.contains("zstd") {
        "it is compressed; give the layer as it is, as `ccm-operator provider pack --oci-layout` writes it and \
         `skopeo copy --preserve-digests` copies it"
    } else {
        "`ccm-operator provider pack --oci-layout` writes such an image"
    };
    Err(Error::new(file, None, format!("media type {:?}, not {expected:?}: {fix}", begin(found))))
}

fn path_of(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

/// Returns the path for an untrusted digest, which must not lead anywhere else.
fn checked_path(from: &str, digest: &str) -> Result<String, Error> {
    let is_hex =
        |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if digest.strip_prefix("sha256:").is_some_and(is_hex) {
        return Ok(path_of(digest));
    }
    let problem = format!("digest {:?} is not sha256: and 64 hexadecimal digits", begin(digest));
    Err(Error::new(from, None, problem))
}
