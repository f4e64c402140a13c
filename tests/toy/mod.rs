//! Toys: a vendor that only a test adds. A directory below /sys/class/toy is a device.

use std::sync::Arc;

use serde::Deserialize;

use super::Vendor;
use super::per_card::per_card;
use crate::device::{Device, Found, HostPath};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::Directory;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "toy";

/// Options of toys.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToyOptions {
    /// Whether to look for them.
    pub enabled: bool,
    /// Who makes them.
    pub maker: String,
}

/// Looks for toys.
#[derive(Debug)]
pub struct Toy(pub ToyOptions);

impl Vendor for Toy {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let class = host.sys("class/toy");
        let names = Directory::open(&class).and_then(|directory| directory.names()).unwrap_or_default();
        let cards = names.into_iter().map(|name| ((name.clone(), class.join(&name)), name)).collect();
        let (maker, behind_fence) = (self.0.maker.clone(), host.clone());
        let work = move |name: String| Arc::new(device(&behind_fence, &maker, &name));
        found.devices = per_card(VENDOR, &mut found, fence, cards, work);
        found
    }
}

fn device(host: &Host, maker: &str, name: &str) -> Device {
    let mut device = Device {
        vendor: VENDOR.into(),
        card: name.to_owned(),
        id: name.to_owned(),
        resource_name: Some(format!("{maker}.example/toy")),
        paths: vec![HostPath::node(format!("/dev/{name}"), None)],
        ..Device::default()
    };
    let colour = host.sys("class/toy").join(name).join("colour");
    if let Ok(attribute) = Attribute::read(&colour) {
        device.note("colour", attribute.text(), host.own_path(colour));
    }
    device
}
