//! What the Python side hands to the scan: the validated parts of the config file, as JSON.

use std::time::Duration;

use serde::Deserialize;

use crate::host::Host;
use crate::nvml::NvmlSettings;
use crate::vendors::table::{Options, ROWS, Surroundings};

/// Used when the settings name no deadline that is one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Everything that can be chosen about a scan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether the host is a tree of `devherd sim node`, in which plain files may stand for device nodes.
    pub simulated_host: bool,
    /// Seconds a probe may take.
    pub probe_timeout: f64,
    /// Where NVML's facts come from.
    pub nvml: NvmlSettings,
    /// Options of each vendor.
    pub vendors: Options,
}

impl Default for Settings {
    fn default() -> Self {
        Self { simulated_host: false, probe_timeout: 2.0, nvml: NvmlSettings::default(), vendors: Options::default() }
    }
}

impl Settings {
    /// Settings from the JSON of `devherd.config.Config.native_json`.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub fn from_json(json: &str) -> Result<Self, String> {
        let settings: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        settings
            .probe_deadline()
            .ok_or_else(|| format!("probe_timeout: {} is not a positive number of seconds", settings.probe_timeout))?;
        Ok(settings)
    }

    /// The host below a root.
    #[must_use]
    pub fn host(&self, root: &str) -> Host {
        if self.simulated_host { Host::simulated(root) } else { Host::new(root) }
    }

    /// The upper limit of a probe's time, whatever the settings.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.probe_deadline().unwrap_or(PATIENCE)
    }

    /// Whether both are the same for a vendor, which then keeps its state.
    #[must_use]
    pub fn agree_on(&self, other: &Self, vendor: &str) -> bool {
        let uses_nvml = ROWS.iter().any(|row| row.name == vendor && row.uses_nvml);
        self.vendors.agree_on(&other.vendors, vendor) && (!uses_nvml || self.nvml == other.nvml)
    }

    /// What vendors are given besides their options.
    #[must_use]
    pub fn surroundings(&self) -> Surroundings {
        Surroundings { patience: self.patience(), nvml: self.nvml.clone() }
    }

    /// How long a probe may take; `None` when that is no time at all.
    #[must_use]
    pub fn probe_deadline(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.probe_timeout).ok().filter(|deadline| !deadline.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendors::generic::GenericKind;
    use crate::vendors::intel_fpga::IntelFpgaMode;

    #[test]
    fn nothing_said_means_every_vendor_with_its_defaults() {
        let settings = Settings::from_json("{}").unwrap();
        assert_eq!(settings, Settings::default());
        assert!(settings.vendors.intel_fpga.enabled);
        assert_eq!(settings.probe_deadline(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place() {
        for (json, complaint) in [
            ("", "EOF"),
            ("1", "line 1"),
            (r#"{"probe_timeout": "2s"}"#, "invalid type"),
            (r#"{"probe_timeout": 0}"#, "probe_timeout"),
            (r#"{"probe_timeout": -1}"#, "probe_timeout"),
            (r#"{"probe_timeout": 1e300}"#, "probe_timeout"),
            (r#"{"vendors": {"intel_fpga": {"mode": "partial"}}}"#, "partial"),
            (r#"{"vendor": {}}"#, "vendor"),
            (r#"{"vendors": {"simulated": [{"name": "a/b", "count": -1}]}}"#, "-1"),
        ] {
            let error = Settings::from_json(json).unwrap_err();
            assert!(error.contains(complaint), "{json}: {error}");
        }
    }

    #[test]
    fn modes_and_generic_keys_are_spelt_as_in_the_config_file() {
        let json = r#"{"vendors": {"intel_fpga": {"mode": "regiondevel"},
                       "generic": [{"name": "a/b", "groups": [{"paths": [{"path": "/x", "mountPath": "/y", "type": "Mount"}]}]}]}}"#;
        let settings = Settings::from_json(json).unwrap();
        assert_eq!(settings.vendors.intel_fpga.mode, IntelFpgaMode::RegionDevel);
        let path = &settings.vendors.generic[0].groups[0].paths[0];
        assert_eq!((path.mount_path.as_str(), path.kind, path.limit), ("/y", GenericKind::Mount, 1));
    }
}
