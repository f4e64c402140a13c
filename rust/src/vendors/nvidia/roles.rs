//! What the paths of NVIDIA's devices and of its installation are for, and the facts of the installation: words by which
//! the scan leaves them and the edits find them.

/// The fact that names the directory of the host's device nodes.
pub(super) const DEV_ROOT: &str = "dev_root";
/// The fact that names the driver version of the libraries.
pub(super) const DRIVER_VERSION: &str = "driver_version";

/// Roles of paths that belong to the installation.
pub(super) const CONTROL: &str = "control";
pub(super) const IMEX_CHANNEL: &str = "imex-channel";
pub(super) const LIBRARY: &str = "library";
/// Links beside libraries by which programs find them.
pub(super) const LIBRARY_LINK: &str = "library-link";
/// Modules of the X server.
pub(super) const MODULE: &str = "module";
/// What tells loaders of graphics and OpenCL of the driver.
pub(super) const CONFIGURATION: &str = "configuration";
/// Programs and firmware.
pub(super) const FILE: &str = "file";
pub(super) const SOCKET: &str = "socket";
/// What the lists of a Tegra board name.
pub(super) const LISTED: &str = "listed";
/// Windows' drivers.
pub(super) const DRIVER_STORE: &str = "driver-store";

/// Roles of paths that belong to one device: its own nodes, and those below /dev/dri.
pub(super) const DEVICE: &str = "device";
pub(super) const GRAPHICS: &str = "graphics";
