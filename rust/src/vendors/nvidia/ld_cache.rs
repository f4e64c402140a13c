//! `/etc/ld.so.cache`: where the dynamic linker of a host finds libraries, also outside the directories that it knows itself.
//!
//! The layout is that of glibc's `sysdeps/generic/dl-cache.h`: a header, entries of fixed size, and their texts.

use std::collections::BTreeSet;
use std::path::Path;

use crate::host::Host;
use crate::host::resolve;

pub(super) const PATH: &str = "/etc/ld.so.cache";
/// `CACHEMAGIC`, of the format before glibc 2.2: a cache may begin with its entries.
const OLD: &[u8] = b"ld.so-1.7.0";
/// `CACHEMAGIC_NEW` and `CACHE_VERSION`.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// `_DL_CACHE_DEFAULT_ID` of the architectures that NVIDIA has drivers for: a library for libc 6, of 64 bits.
const KINDS: [u32; 2] = [0x0303, 0x0a03];

/// The directories of 64-bit libraries whose names begin with one of these, in a host's cache; none where it has no cache.
#[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
pub(super) fn directories(host: &Host, names: &[&str]) -> Vec<String> {
    let cache = std::fs::read(resolve::followed(host, Path::new(PATH))).unwrap_or_default();
    let wanted = libraries(&cache).into_iter().filter(|(name, _)| names.iter().any(|start| name.starts_with(start)));
    let directories: BTreeSet<String> =
        wanted.filter_map(|(_, path)| Some(path.rsplit_once('/')?.0.to_owned())).collect();
    directories.into_iter().collect()
}

/// Name and path of each 64-bit library; what is damaged is left out.
fn libraries(file: &[u8]) -> Vec<(&str, &str)> {
    let Some(cache) = newer_part(file) else { return Vec::new() };
    let count = number(cache, MAGIC.len()).unwrap_or_default();
    let entries = (0..count).map_while(|index| {
        let start = index.checked_mul(ENTRY)?.checked_add(HEADER)?;
        cache.get(start..start.checked_add(ENTRY)?)
    });
    let of_kind =
        entries.filter(|entry| number(entry, 0).is_some_and(|kind| KINDS.iter().any(|&one| one as usize == kind)));
    of_kind.filter_map(|entry| Some((text(cache, number(entry, 4)?)?, text(cache, number(entry, 8)?)?))).collect()
}

/// Behind the entries of the old format, if there are any. Offsets count from here.
fn newer_part(file: &[u8]) -> Option<&[u8]> {
    let start = if file.starts_with(OLD) {
        let entries = number(file, OLD_HEADER - size_of::<u32>())?.checked_mul(OLD_ENTRY)?;
        OLD_HEADER.checked_add(entries)?.checked_next_multiple_of(align_of::<u64>())?
    } else {
        0
    };
    file.get(start..).filter(|cache| cache.starts_with(MAGIC))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)?;
    usize::try_from(number).ok()
}

fn text(cache: &[u8], at: usize) -> Option<&str> {
    let rest = cache.get(at..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const X86_64: u32 = 0x0303;
    const I386: u32 = 0x0003;

    /// As ldconfig writes it.
    fn cache(entries: &[(u32, &str)]) -> Vec<u8> {
        let mut texts = Vec::new();
        let mut written = MAGIC.to_vec();
        written.extend(u32::try_from(entries.len()).unwrap().to_ne_bytes());
        written.resize(HEADER, 0);
        let base = HEADER + entries.len() * ENTRY;
        for (kind, path) in entries {
            let value = base + texts.len();
            let key = value + path.rfind('/').unwrap() + 1;
            texts.extend(path.bytes().chain([0]));
            for word in [*kind, u32::try_from(key).unwrap(), u32::try_from(value).unwrap(), 0, 0, 0] {
                written.extend(word.to_ne_bytes());
            }
        }
        written.extend(texts);
        written
    }

    fn with_old_entries(newer: &[u8], count: usize) -> Vec<u8> {
        let mut written = OLD.to_vec();
        written.push(0);
        written.extend(u32::try_from(count).unwrap().to_ne_bytes());
        written.resize((OLD_HEADER + count * OLD_ENTRY).next_multiple_of(8), 0);
        written.extend(newer);
        written
    }

    #[test]
    fn libraries_of_64_bits_are_listed_in_both_formats() {
        let newer = cache(&[
            (X86_64, "/opt/nvidia/libcuda.so.1"),
            (I386, "/usr/lib32/libcuda.so.1"),
            (X86_64, "/lib/libc.so.6"),
        ]);
        for file in [newer.clone(), with_old_entries(&newer, 3), with_old_entries(&newer, 4)] {
            assert_eq!(
                libraries(&file),
                [("libcuda.so.1", "/opt/nvidia/libcuda.so.1"), ("libc.so.6", "/lib/libc.so.6")]
            );
        }
        assert_eq!(libraries(b"glibc-ld.so.cache1.0"), []);
    }

    #[test]
    fn directories_are_those_of_the_libraries_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert!(directories(&host, &["libcuda.so."]).is_empty());
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let paths = ["/opt/nvidia/libcuda.so.1", "/opt/nvidia/libnvidia-ml.so.1", "/lib/libc.so.6"];
        std::fs::write(root.path().join("etc/ld.so.cache"), cache(&paths.map(|path| (X86_64, path)))).unwrap();
        assert_eq!(directories(&host, &["libcuda.so.", "libnvidia-ml.so."]), ["/opt/nvidia"]);
    }

    #[test]
    fn this_machines_own_cache_can_be_read() {
        let is_there = Path::new(PATH).exists();
        assert_eq!(is_there, !directories(&Host::new("/"), &["libc.so."]).is_empty());
    }

    proptest! {
        #[test]
        fn any_file_can_be_read(bytes: Vec<u8>, count: u32, old: bool) {
            let mut file = MAGIC.to_vec();
            file.extend(count.to_ne_bytes());
            file.extend(bytes);
            libraries(&if old { with_old_entries(&file, 1) } else { file });
        }
    }
}
