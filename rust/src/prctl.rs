//! Settings of a forked child for itself, by prctl: <https://man7.org/linux/man-pages/man2/prctl.2.html>.

use std::ffi::CString;
use std::io;

use rustix::process::Signal;

/// The kernel's `TASK_COMM_LEN` without the closing NUL.
const LONGEST_NAME: usize = 15;

/// Makes the kernel send `signal` to this process when the thread that forked it ends.
///
/// If the parent ends before this call, no signal is sent: check `getppid` afterwards.
///
/// # Errors
/// `InvalidInput` if there is no such signal.
pub fn die_with_parent(signal: i32) -> io::Result<()> {
    let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("there is no signal {signal}"));
    let signal = Signal::from_named_raw(signal).ok_or_else(unknown)?;
    Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
}

/// Makes this process, instead of process 1, the parent of every orphan that its children leave behind.
///
/// # Errors
/// `EINVAL` if the kernel has no such setting.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Names the calling thread; in a process with one thread this is the name that `ps` and `top` show.
///
/// # Errors
/// `InvalidInput` if the name contains a NUL byte.
pub fn set_process_name(name: &str) -> io::Result<()> {
    Ok(rustix::thread::set_name(&CString::new(cut(name))?)?)
}

/// The part of the name that the kernel keeps, cut at a character boundary: half a character would be shown as garbage.
fn cut(name: &str) -> &str {
    let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_to_fifteen_bytes_between_characters() {
        for (name, expected) in [
            ("", ""),
            ("scanner", "scanner"),
            ("resource:intel.com", "resource:intel."),
            ("fünfzehn_Zeichen", "fünfzehn_Zeich"),
            ("€€€€€€", "€€€€€"),
            ("ab€€€€€€", "ab€€€€"),
        ] {
            assert_eq!(cut(name), expected);
        }
    }

    #[test]
    fn a_process_name_reaches_the_kernel() {
        std::thread::spawn(|| {
            set_process_name("resource:nvidia.com_gpu").unwrap();
            assert_eq!(rustix::thread::name().unwrap().to_str(), Ok("resource:nvidia"));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_name_with_a_nul_byte_is_refused() {
        assert_eq!(set_process_name("a\0b").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn an_unknown_signal_is_refused() {
        for signal in [-1, 0, 1000] {
            assert_eq!(die_with_parent(signal).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_death_signal_reaches_the_kernel() {
        // The signal is an attribute of the thread, so the process of the test is not affected.
        std::thread::spawn(|| {
            die_with_parent(Signal::TERM.as_raw()).unwrap();
            assert_eq!(rustix::process::parent_process_death_signal().unwrap(), Some(Signal::TERM));
        })
        .join()
        .unwrap();
    }
}
