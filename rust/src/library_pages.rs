//! Pages of libraries: of what a start read and ran of them, hardly anything is needed afterwards.

#![expect(unsafe_code, reason = "advice for a range of addresses has no safe interface")]
#![expect(clippy::disallowed_methods, reason = "what the kernel tells of this very process is no file of the host")]

use std::fs;
use std::io;
use std::ops::Range;

/// Takes the pages of libraries out of this process's memory; what it runs or reads again comes from the page cache.
///
/// Only files that are mapped without leave to write and of which nothing was written meanwhile, as relocation does: what
/// is taken away is in the file.
///
/// # Errors
/// When `/proc/self/smaps` cannot be read.
pub fn let_go() -> io::Result<()> {
    for Range { start, end } in as_in_their_files(&fs::read_to_string("/proc/self/smaps")?) {
        // SAFETY: every page of the range is as it is in its file, and the kernel maps it again at the next access.
        // What it refuses stays mapped.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
    }
    Ok(())
}

/// The ranges of private, read-only mappings of files that have no page of their own, by
/// <https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html>.
fn as_in_their_files(smaps: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some((name, value)) = line.split_once(':').filter(|(name, _)| !name.contains(' ')) {
            if name == "Anonymous" {
                found.extend(candidate.take().filter(|_| value.trim() == "0 kB"));
            }
        } else {
            candidate = read_only_file(line);
        }
    }
    found
}

/// The range of a mapping's first line, `7f01-7f02 r-xp 00001000 08:01 1234   /usr/lib/libc.so.6`.
fn read_only_file(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let is_file = fields.nth(3).is_some_and(|path| path.starts_with('/'));
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    (is_file && permissions.ends_with('p') && !permissions.contains('w')).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000001000 r-xp 00001000 08:01 11   /usr/lib/a.so
Size:                  4 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f0000001000-7f0000002000 r--p 00002000 08:01 11   /usr/lib/relocated.so
Anonymous:             4 kB
7f0000002000-7f0000003000 rw-p 00003000 08:01 11   /usr/lib/a.so
Anonymous:             0 kB
7f0000003000-7f0000004000 r--s 00000000 08:01 12   /dev/shm/shared
Anonymous:             0 kB
7f0000004000-7f0000005000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000005000-7f0000006000 r-xp 00000000 00:00 0   [vdso]
Anonymous:             0 kB
7f0000006000-7f0000008000 r--p 00000000 08:01 13   /usr/lib/with a: colon.so
Anonymous:             0 kB
";

    #[test]
    fn only_read_only_files_without_pages_of_their_own_are_let_go_of() {
        let expected = [0x7f00_0000_0000..0x7f00_0000_1000, 0x7f00_0000_6000..0x7f00_0000_8000];
        assert_eq!(as_in_their_files(SMAPS), expected);
    }

    #[test]
    fn a_process_runs_on_without_the_pages() {
        let before = resident();
        let_go().unwrap();
        assert!(resident() < before);
        assert_eq!(format!("{:.3}", 2.0_f64.sqrt()), "1.414");
    }

    fn resident() -> usize {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}
