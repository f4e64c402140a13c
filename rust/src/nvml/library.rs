//! NVML as a loaded library, with one method for each signature that its functions have.
//!
//! Every function may be missing, depending on the driver's version. Versions of a name are tried newest first. The
//! library is found below a driver root: in the directories in which NVIDIA's own plugin expects it, and in WSL's.

#![expect(unsafe_code, reason = "a C library is called by pointers that only its documentation types")]

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong};
use std::fmt;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::interface::{
    NVML_DEVICE_NAME_V2_BUFFER_SIZE, Plain, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t,
    nvmlReturn_t,
};

/// Bytes of a text buffer: names and UUIDs need the most.
const TEXT_SIZE: usize = NVML_DEVICE_NAME_V2_BUFFER_SIZE as usize;

/// The values of `nvmlReturn_t` that are distinguished here.
pub(super) mod code {
    pub(in crate::nvml) use super::super::interface::{
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH as ARGUMENT_VERSION_MISMATCH,
        NVML_ERROR_DRIVER_NOT_LOADED as DRIVER_NOT_LOADED, NVML_ERROR_FUNCTION_NOT_FOUND as FUNCTION_NOT_FOUND,
        NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT, NVML_ERROR_LIB_RM_VERSION_MISMATCH as LIB_RM_VERSION_MISMATCH,
        NVML_ERROR_NO_PERMISSION as NO_PERMISSION, NVML_ERROR_NOT_FOUND as NOT_FOUND,
        NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, NVML_ERROR_TIMEOUT as TIMEOUT, NVML_ERROR_UNKNOWN as UNKNOWN,
        NVML_SUCCESS as SUCCESS,
    };
}

fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` promises that zero bytes are a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A function that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) function: &'static str,
    /// The returned code; `None` if the library has no such function.
    pub(super) code: Option<nvmlReturn_t>,
    /// The library's own words for the code.
    pub(super) meaning: String,
}

impl Failure {
    /// Whether this driver or GPU does not support the call, which is not a problem.
    pub(super) fn is_unsupported(&self) -> bool {
        let is_unknown = |it| matches!(it, code::NOT_SUPPORTED | code::FUNCTION_NOT_FOUND);
        self.code.is_none_or(is_unknown) || self.is_of_another_version()
    }

    /// Whether the driver has the function in another version only, or does not accept the version of the layout to
    /// fill in.
    pub(super) fn is_of_another_version(&self) -> bool {
        self.code.is_none_or(|it| matches!(it, code::ARGUMENT_VERSION_MISMATCH | code::FUNCTION_NOT_FOUND))
    }

    /// Whether this process lacks the right to make the call.
    pub(super) fn is_forbidden(&self) -> bool {
        self.code == Some(code::NO_PERMISSION)
    }

    /// Whether nothing exists under the requested index.
    pub(super) fn is_absent(&self) -> bool {
        self.code.is_some_and(|it| matches!(it, code::INVALID_ARGUMENT | code::NOT_FOUND))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.function, self.meaning)
    }
}

pub(super) type Answer<T> = Result<T, Failure>;

/// A function's names in all its versions, newest first.
pub(super) type Names = &'static [&'static str];

/// The loaded library, unloaded when dropped. Unloading runs its code, which may hang like any other call.
pub(super) struct Library(libloading::Library);

impl Library {
    /// Loads a library by path or, if the name has no slash, through the dynamic loader's search.
    ///
    /// # Errors
    /// The dynamic loader's own words.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: the library's initialisers run here. This is NVIDIA's library, chosen by the driver's installation,
        // and only its own process is at stake.
        let loaded = unsafe { libloading::Library::new(path) };
        loaded.map(Self).map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
    }

    /// Calls a function without arguments: `nvmlReturn_t f(void)`.
    pub(super) fn act(&self, names: Names) -> Answer<()> {
        type Function = unsafe extern "C" fn() -> nvmlReturn_t;
        let (name, function) = self.function::<Function>(names)?;
        // SAFETY: the documented signature; it has no arguments.
        self.checked(name, unsafe { function() })
    }

    /// `nvmlReturn_t f(T *)`.
    pub(super) fn value<T: Plain>(&self, names: Names) -> Answer<T> {
        type Function<T> = unsafe extern "C" fn(*mut T) -> nvmlReturn_t;
        let (name, function) = self.function::<Function<T>>(names)?;
        let mut value = zeroed::<T>();
        // SAFETY: the documented signature; the pointer is to a value of the documented layout that outlives the call.
        self.checked(name, unsafe { function(&raw mut value) })?;
        Ok(value)
    }

    /// `nvmlReturn_t f(char *, unsigned int length)`.
    pub(super) fn text(&self, names: Names) -> Answer<String> {
        type Function = unsafe extern "C" fn(*mut c_char, c_uint) -> nvmlReturn_t;
        let (name, function) = self.function::<Function>(names)?;
        let mut buffer = [0 as c_char; TEXT_SIZE];
        // SAFETY: the documented signature; the function is given the length of the buffer.
        self.checked(name, unsafe { function(buffer.as_mut_ptr(), length(&buffer)) })?;
        Ok(text(&buffer))
    }

    /// `nvmlReturn_t f(unsigned int index, T *)`.
    pub(super) fn at<T: Plain>(&self, names: Names, index: c_uint) -> Answer<T> {
        type Function<T> = unsafe extern "C" fn(c_uint, *mut T) -> nvmlReturn_t;
        let (name, function) = self.function::<Function<T>>(names)?;
        let mut value = zeroed::<T>();
        // SAFETY: as in `value`; an invalid index returns an error code.
        self.checked(name, unsafe { function(index, &raw mut value) })?;
        Ok(value)
    }

    /// `nvmlReturn_t f(handle, T *)`.
    pub(super) fn value_of<H: Plain, T: Plain>(&self, names: Names, handle: H) -> Answer<T> {
        type Function<H, T> = unsafe extern "C" fn(H, *mut T) -> nvmlReturn_t;
        let (name, function) = self.function::<Function<H, T>>(names)?;
        let mut value = zeroed::<T>();
        // SAFETY: as in `value`; the handle is one that this library handed out and has not taken back.
        self.checked(name, unsafe { function(handle, &raw mut value) })?;
        Ok(value)
    }

    /// `nvmlReturn_t f(handle, T *, T *)`.
    pub(super) fn pair_of<T: Plain>(&self, names: Names, handle: nvmlDevice_t) -> Answer<(T, T)> {
        type Function<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T, *mut T) -> nvmlReturn_t;
        let (name, function) = self.function::<Function<T>>(names)?;
        let (mut one, mut other) = (zeroed::<T>(), zeroed::<T>());
        // SAFETY: as in `value_of`, with two values.
        self.checked(name, unsafe { function(handle, &raw mut one, &raw mut other) })?;
        Ok((one, other))
    }

    /// `nvmlReturn_t f(handle, char *, unsigned int length)`.
    pub(super) fn text_of(&self, names: Names, handle: nvmlDevice_t) -> Answer<String> {
        type Function = unsafe extern "C" fn(nvmlDevice_t, *mut c_char, c_uint) -> nvmlReturn_t;
        let (name, function) = self.function::<Function>(names)?;
        let mut buffer = [0 as c_char; TEXT_SIZE];
        // SAFETY: as in `value_of` and `text`.
        self.checked(name, unsafe { function(handle, buffer.as_mut_ptr(), length(&buffer)) })?;
        Ok(text(&buffer))
    }

    /// `nvmlReturn_t f(handle, unsigned int index, T *)`.
    pub(super) fn below<T: Plain>(&self, names: Names, handle: nvmlDevice_t, index: c_uint) -> Answer<T> {
        type Function<T> = unsafe extern "C" fn(nvmlDevice_t, c_uint, *mut T) -> nvmlReturn_t;
        let (name, function) = self.function::<Function<T>>(names)?;
        let mut value = zeroed::<T>();
        // SAFETY: as in `value_of` and `at`.
        self.checked(name, unsafe { function(handle, index, &raw mut value) })?;
        Ok(value)
    }

    /// `nvmlReturn_t f(const char *, T *)`.
    pub(super) fn named<T: Plain>(&self, names: Names, name: &str) -> Answer<T> {
        type Function<T> = unsafe extern "C" fn(*const c_char, *mut T) -> nvmlReturn_t;
        let (function_name, function) = self.function::<Function<T>>(names)?;
        let text = CString::new(name).unwrap_or_default();
        let mut value = zeroed::<T>();
        // SAFETY: as in `value`; the text has a closing NUL and outlives the call.
        self.checked(function_name, unsafe { function(text.as_ptr(), &raw mut value) })?;
        Ok(value)
    }

    /// `nvmlReturn_t f(handle)`.
    pub(super) fn act_on<H: Plain>(&self, names: Names, handle: H) -> Answer<()> {
        type Function<H> = unsafe extern "C" fn(H) -> nvmlReturn_t;
        let (name, function) = self.function::<Function<H>>(names)?;
        // SAFETY: as in `value_of`.
        self.checked(name, unsafe { function(handle) })
    }

    /// `nvmlReturn_t f(handle, T *)`, where the value names its own layout.
    pub(super) fn filled_of<T: Plain>(&self, names: Names, handle: nvmlDevice_t, mut value: T) -> Answer<T> {
        type Function<T> = unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t;
        let (name, function) = self.function::<Function<T>>(names)?;
        // SAFETY: as in `value_of`; the value has the layout that it names.
        self.checked(name, unsafe { function(handle, &raw mut value) })?;
        Ok(value)
    }

    /// `nvmlDeviceRegisterEvents`.
    pub(super) fn register(&self, device: nvmlDevice_t, types: c_ulonglong, set: nvmlEventSet_t) -> Answer<()> {
        type Function = unsafe extern "C" fn(nvmlDevice_t, c_ulonglong, nvmlEventSet_t) -> nvmlReturn_t;
        let (name, function) = self.function::<Function>(&["nvmlDeviceRegisterEvents"])?;
        // SAFETY: the documented signature; this library handed out both handles and has not taken them back.
        self.checked(name, unsafe { function(device, types, set) })
    }

    /// `nvmlEventSetWait_v2`; `None` if no event came within that time. Version 1 reports no MIG instances.
    pub(super) fn wait(&self, set: nvmlEventSet_t, milliseconds: c_uint) -> Answer<Option<nvmlEventData_t>> {
        type Function = unsafe extern "C" fn(nvmlEventSet_t, *mut nvmlEventData_t, c_uint) -> nvmlReturn_t;
        let (name, function) = self.function::<Function>(&["nvmlEventSetWait_v2"])?;
        let mut event = zeroed::<nvmlEventData_t>();
        // SAFETY: the documented signature; the set is one of this library that has not been freed.
        match unsafe { function(set, &raw mut event, milliseconds) } {
            code::TIMEOUT => Ok(None),
            returned => self.checked(name, returned).map(|()| Some(event)),
        }
    }

    /// `nvmlDeviceGetFieldValues`: each value has a result of its own.
    pub(super) fn fields(&self, device: nvmlDevice_t, values: &mut [nvmlFieldValue_t]) -> Answer<()> {
        type Function = unsafe extern "C" fn(nvmlDevice_t, c_int, *mut nvmlFieldValue_t) -> nvmlReturn_t;
        let (name, function) = self.function::<Function>(&["nvmlDeviceGetFieldValues"])?;
        let count = c_int::try_from(values.len()).unwrap_or_default();
        // SAFETY: the documented signature; the function is given the number of values.
        self.checked(name, unsafe { function(device, count, values.as_mut_ptr()) })
    }

    /// The failure for a result that is part of an answer.
    pub(super) fn failure(&self, function: &'static str, returned: nvmlReturn_t) -> Failure {
        Failure { function, code: Some(returned), meaning: self.meaning(returned) }
    }

    /// The first of the names that the library has. `F` is the documented signature of all of them.
    fn function<F: Copy>(&self, names: Names) -> Answer<(&'static str, F)> {
        for name in names {
            // SAFETY: `F` is the signature that NVIDIA documents for the name, and the library stays loaded.
            if let Ok(function) = unsafe { self.0.get::<F>(name.as_bytes()) } {
                return Ok((name, *function));
            }
        }
        let function = names.first().copied().unwrap_or_default();
        Err(Failure { function, code: None, meaning: "this driver's library has no such function".to_owned() })
    }

    fn checked(&self, function: &'static str, returned: nvmlReturn_t) -> Answer<()> {
        if returned == code::SUCCESS {
            return Ok(());
        }
        Err(self.failure(function, returned))
    }

    fn meaning(&self, returned: nvmlReturn_t) -> String {
        type Function = unsafe extern "C" fn(nvmlReturn_t) -> *const c_char;
        let Ok((_, function)) = self.function::<Function>(&["nvmlErrorString"]) else {
            return format!("error {returned}");
        };
        // SAFETY: the documented signature; it takes any number and may be called before initialisation.
        let words = unsafe { function(returned) };
        if words.is_null() {
            return format!("error {returned}");
        }
        // SAFETY: not null, and documented to be a constant text with a closing NUL.
        let words = unsafe { CStr::from_ptr(words) };
        words.to_string_lossy().into_owned()
    }
}

fn length(buffer: &[c_char; TEXT_SIZE]) -> c_uint {
    c_uint::try_from(buffer.len()).unwrap_or_default()
}

/// The text before the closing NUL; all of it if the library wrote none.
fn text(buffer: &[c_char; TEXT_SIZE]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&byte| byte != 0).map(|byte| byte.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The text of a version number: `13010` is 13.1, in thousands and tens (`nvmlSystemGetCudaDriverVersion`).
pub(super) fn cuda_version(number: c_int) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// The name by which the dynamic loader finds it.
pub const SONAME: &str = "libnvidia-ml.so.1";

const DIRECTORIES: [&str; 7] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/wsl/lib",
];

/// Further directories, whose libraries may be of 32 bits: NixOS and Talos have no other ones for them.
const PLAIN_DIRECTORIES: [&str; 2] = ["usr/lib", "lib"];

/// The library below a driver root, if there is one.
#[must_use]
pub fn below(driver_root: &Path) -> Option<PathBuf> {
    let place = |directory: &&str| driver_root.join(directory).join(SONAME);
    let usual = DIRECTORIES.iter().map(place).find(|path| path.exists());
    usual.or_else(|| PLAIN_DIRECTORIES.iter().map(place).find(|path| is_of_64_bits(path)))
}

/// Whether a file is a library of 64 bits, by its first bytes: `e_ident` of elf(5).
#[must_use]
pub fn is_of_64_bits(path: &Path) -> bool {
    const ELF_64: [u8; 5] = [0x7f, b'E', b'L', b'F', 2];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    let mut start = [0; ELF_64.len()];
    rustix::io::read(file, &mut start[..]).is_ok() && start == ELF_64
}

/// The version in the name of the file that `path` leads to: `libnvidia-ml.so.590.48.01`.
pub(super) fn file_version(path: &Path) -> Option<String> {
    let file = path.canonicalize().ok()?;
    let version = file.file_name()?.to_str()?.strip_prefix("libnvidia-ml.so.")?.to_owned();
    version.contains('.').then_some(version)
}

/// The file from which this process has loaded the library, wherever the dynamic loader found it.
#[expect(clippy::disallowed_methods, reason = "the process's own procfs, which does not hang")]
pub(super) fn loaded_file() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])));
    let is_library =
        |file: &&Path| file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libnvidia-ml.so"));
    files.into_iter().find(is_library).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_text_without_a_closing_nul_is_taken_whole() {
        assert_eq!(text(&[c_char::try_from(b'x').unwrap(); TEXT_SIZE]), "x".repeat(TEXT_SIZE));
        assert_eq!(text(&[0; TEXT_SIZE]), "");
    }

    #[test]
    fn cuda_versions_have_two_parts() {
        assert_eq!((cuda_version(13010), cuda_version(11040)), ("13.1".to_owned(), "11.4".to_owned()));
    }

    #[test]
    fn what_is_no_library_is_refused_in_the_loaders_words() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Library::load(file.path()).err().unwrap();
        assert!(error.contains("file too short"), "{error}");
    }

    #[test]
    fn a_function_that_the_library_lacks_is_unsupported() {
        let library = Library::load(Path::new("libc.so.6")).unwrap();
        let failure = library.act(&["nvmlInit_v2", "nvmlInit"]).unwrap_err();
        assert_eq!((failure.function, failure.code), ("nvmlInit_v2", None));
        assert!(failure.is_unsupported() && !failure.is_absent());
    }

    #[test]
    fn the_library_is_found_below_a_driver_root_with_its_version() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(below(root.path()), None);
        let directory = root.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("libnvidia-ml.so.590.48.01"), "").unwrap();
        symlink("libnvidia-ml.so.590.48.01", directory.join(SONAME)).unwrap();
        assert_eq!(below(root.path()), Some(directory.join(SONAME)));
        assert_eq!(file_version(&directory.join(SONAME)).as_deref(), Some("590.48.01"));
    }

    #[test]
    fn in_lib_a_library_of_64_bits_is_found_and_none_of_32() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("lib").join(SONAME);
        fs::create_dir_all(root.path().join("lib")).unwrap();
        for (start, is_found) in [(&b"\x7fELF\x01\x01"[..], false), (b"\x7fELF\x02\x01", true), (b"", false)] {
            fs::write(&file, start).unwrap();
            assert_eq!(below(root.path()).is_some(), is_found, "{start:?}");
        }
    }

    #[test]
    fn a_file_without_a_version_in_its_name_has_none() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(SONAME), "").unwrap();
        assert_eq!(file_version(&root.path().join(SONAME)), None);
        assert_eq!(file_version(Path::new(SONAME)), None);
    }
}
