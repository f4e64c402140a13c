//! Xilinx FPGA cards under XRT: Alveo, U30, V70, and AWS F1; and MA35D media cards.
//!
//! ```text
//! locate      /sys/bus/pci/devices ─► pairs of user and management function    (looks for names, touches no hardware)
//!             cards that lost their user function ─► they stay, Unhealthy
//! card        a pair ─► facts: shell, serial number, nodes                     (behind the fence)
//! advertise   facts ─► a device under the name of its shell; the devices of one U30 card ─► one
//!             MA35D, which have a driver of their own, are described by a class: `amd-ma35d.toml`
//! ```

mod advertise;
mod card;
mod locate;

use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::Vendor;
use super::card_cache::CardCache;
use super::classes::{self, DeviceClass};
use super::per_card::per_card;
use crate::device::{Device, Found, NotExamined, Platform};
use crate::edits::{self, Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use advertise::{Advertised, advertise};
use card::{Facts, NoCard};

/// The value of `vendor` in JSON, metrics and problems.
pub(super) const VENDOR: &str = "xilinx-fpga";

/// The answer for a card; `None` if the card is made by another maker.
type Answer = Result<Option<Advertised>, NoCard>;
type Cache = CardCache<Arc<locate::Cards>, locate::Pair, Answer>;

/// Scans for Xilinx FPGA cards under XRT.
#[derive(Debug)]
pub struct XilinxFpga {
    options: XilinxFpgaOptions,
    classes: Arc<[DeviceClass]>,
    cache: Arc<Cache>,
    /// The user functions of earlier scans.
    known: Mutex<locate::KnownFunctions>,
}

impl XilinxFpga {
    /// A scan with these options.
    #[must_use]
    pub fn new(options: XilinxFpgaOptions) -> Self {
        let classes = options.classes.clone().into();
        Self { options, classes, cache: Arc::default(), known: Mutex::default() }
    }
}

impl Vendor for XilinxFpga {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let located = self.cache.located(host, || {
            let cards = locate::cards(host, &mut found);
            let is_well = cards.is_some();
            (Arc::new(cards.unwrap_or_default()), is_well)
        });
        self.cache.forget_others(located.pairs.iter().map(AsRef::as_ref));
        let mut guesses = Vec::new();
        if found.unseen.is_empty() {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let lost = locate::lost_cards(host, &located, &mut known).into_iter();
            let is_known = |one: &NotExamined| one.card.as_ref().is_some_and(|card| known.contains_key(card));
            (found.unseen, guesses) = lost.partition(is_known);
        }
        let place = |pair: &locate::Pair| pair.place().map(|place| (place.address.clone(), host.own_path(&place.path)));
        let cards = located.pairs.iter().filter_map(|pair| Some((place(pair)?, Arc::clone(pair)))).collect();
        let (behind_fence, convention) = (host.clone(), self.options.u30_name_convention);
        let cache = Arc::clone(&self.cache);
        let work = move |pair: Arc<locate::Pair>| {
            let look = |pair: &locate::Pair| {
                let facts = Facts::read(&behind_fence, pair);
                let advertised = facts.map(|facts| facts.map(|facts| advertise(&behind_fence, facts, convention)));
                let is_well = advertised.as_ref().is_ok_and(|one| one.as_ref().is_some_and(Advertised::is_well));
                (advertised, is_well)
            };
            let is_current = |answer: &Answer| {
                answer.as_ref().is_ok_and(|one| one.as_ref().is_some_and(|one| one.has_its_shell(&behind_fence)))
            };
            cache.examined(&behind_fence, &pair, look, is_current)
        };
        let mut advertised = Vec::new();
        for answer in per_card(VENDOR, &mut found, fence, cards, work) {
            match answer {
                Ok(Some(mut one)) => {
                    found.problems.append(&mut one.problems);
                    advertised.push(one);
                }
                Ok(None) => {}
                Err(NoCard::NeverFlashed(problem)) => found.problems.push(problem),
                Err(NoCard::OfUnknownMaker(problem)) => {
                    found.unseen.push(NotExamined::new(VENDOR, problem.device.clone()));
                    found.problems.push(problem);
                }
            }
        }
        match self.options.u30_alloc_unit {
            U30AllocUnit::Card => advertise::add_cards(advertised, &mut found),
            U30AllocUnit::Device => found.devices.extend(advertised.into_iter().map(|one| one.device)),
        }
        found.unseen.append(&mut guesses); // these cards may never have existed: no reason to leave half a card out
        classes::find(host, fence, VENDOR, &self.classes, &mut found);
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn forget(&self) {
        self.cache.forget();
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        Edits::of_nodes(&device.paths, "rwm").given(way, || edits::cdi_name(device))
    }
}

/// Options of Xilinx's FPGA plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XilinxFpgaOptions {
    /// Whether to look for Xilinx FPGA cards.
    pub enabled: bool,
    /// The resource name of U30 cards.
    pub u30_name_convention: U30NameConvention,
    /// The part of a U30 card that one container gets.
    pub u30_alloc_unit: U30AllocUnit,
    /// Cards that need no code.
    pub classes: Vec<DeviceClass>,
}

/// The resource name of U30 cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum U30NameConvention {
    /// `amd.com/ama_u30`, independent of the shell.
    CommonName,
    /// The name of the shell, as for all other cards.
    ExactName,
}

/// The part of a U30 card that one container gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum U30AllocUnit {
    /// All devices with the same serial number together.
    Card,
    /// Each device on its own.
    Device,
}
