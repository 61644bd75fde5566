//! What the names of images say.

use std::path::Path;

/// Returns the format that a file's name claims, with its article, if that is a container or a compression. A file of that
/// name in no known format is damaged, or something else: it is never read as a raw image without being asked for.
pub fn claimed_format(path: &Path) -> Option<&'static str> {
    const NAMES: [(&[&str], &str); 33] = [
        (&["e01"], "an E01 image"),
        (&["s01"], "an S01 image"),
        (&["ex01"], "an Ex01 image"),
        (&["l01"], "an L01 image"),
        (&["lx01"], "an Lx01 image"),
        (&["ad1"], "an AD1 image"),
        (&["aff4", "af4"], "an AFF4 image"),
        (&["aff", "afd", "afm"], "an AFF image"),
        (&["qcow2", "qcow"], "a QCOW image"),
        (&["qed"], "a QED image"),
        (&["vmdk"], "a VMDK image"),
        (&["vhd", "avhd"], "a VHD image"),
        (&["vhdx", "avhdx"], "a VHDX image"),
        (&["vdi"], "a VDI image"),
        (&["dmg", "sparseimage"], "an Apple disk image"),
        (&["gz", "tgz", "gzip", "bgz"], "a gzip file"),
        (&["bz2", "tbz", "tbz2", "bzip2"], "a bzip2 file"),
        (&["xz", "txz"], "an xz file"),
        (&["lzma", "tlz"], "an lzma file"),
        (&["lz"], "an lzip file"),
        (&["zst", "zstd", "tzst"], "a zstd file"),
        (&["lz4"], "an lz4 file"),
        (&["lzo"], "an lzop file"),
        (&["sz", "snappy"], "a snappy file"),
        (&["br"], "a brotli file"),
        (&["z"], "a file of compress"),
        (&["zip", "zipx"], "a ZIP archive"),
        (&["7z"], "a 7z archive"),
        (&["rar"], "a RAR archive"),
        (&["tar", "ova"], "a tar archive"),
        (&["cab"], "a cabinet archive"),
        (&["cpio"], "a cpio archive"),
        (&["wim", "swm", "esd"], "a WIM archive"),
    ];
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let known = NAMES.into_iter().find(|(names, _)| names.contains(&extension.as_str())).map(|(_, what)| what);
    known.or_else(|| is_later_segment(&extension).then_some("a later segment of an E01 image"))
}

/// Whether a file ending is that of a segment of an E01, S01, L01 or Ex01 image: `e02`, `ex02`.
fn is_later_segment(extension: &str) -> bool {
    let number = extension.strip_prefix(['e', 's', 'l']).map(|rest| rest.strip_prefix('x').unwrap_or(rest));
    number.is_some_and(|number| number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name of `disk.raw.gz` is `disk`, as is that of `disk.raw`.
pub(super) fn stem_of_compressed(path: &Path) -> String {
    let name = stem(path);
    let raw = [".raw", ".dd", ".img", ".bin", ".iso"].into_iter().find_map(|end| name.strip_suffix(end));
    raw.map_or_else(|| name.clone(), str::to_owned)
}

pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "image".to_owned(), |stem| stem.to_string_lossy().into_owned())
}
