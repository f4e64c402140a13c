//! A poller follows changes of the devices, and watches what a new one would.

use super::*;

/// The cards of a poller: position, devices, and for each the places of its subjects among those of the card.
fn shape(poller: &Poller) -> Vec<String> {
    let places = |polled: &Polled| {
        format!("{:?} {:?}", polled.card.shape(), polled.card.watched.iter().map(|one| one.key("")).collect::<Vec<_>>())
    };
    poller.cards.iter().map(places).collect()
}

proptest! {
    #[test]
    fn a_poller_that_follows_changes_watches_what_a_new_one_would(
        lists in prop::collection::vec(prop::collection::vec((0_usize..12, any::<bool>()), 0..12), 1..8),
    ) {
        let tree = Tree::new();
        // Two cards and a third; devices of a card share a register.
        let made = |number: usize| {
            let card = ["card", "card", "other", "third"][number % 4];
            let own = fpga_errors::of_port(format!("/sys/port{number}"));
            Arc::new(device(card, &format!("port.{number}"), vec![own, fpga_errors::of_engine(format!("/sys/{card}{}", number / 6))]))
        };
        let mut known: Vec<_> = (0..12).map(made).collect();
        let mut following = poller(&tree);
        for list in lists {
            let mut devices: Vec<Arc<Device>> = Vec::new();
            for (number, is_made_again) in list {
                if is_made_again {
                    known[number] = made(number);
                }
                if devices.iter().all(|device| device.id != known[number].id) {
                    devices.push(Arc::clone(&known[number]));
                }
            }
            let before: HashMap<_, _> = following.cards.iter()
                .flat_map(|polled| polled.card.watched.iter().map(|one| (one.key(&polled.card.key), Arc::as_ptr(one))))
                .collect();
            following.watch(&devices, &[]);
            let mut new = poller(&tree);
            new.watch(&devices, &[]);
            prop_assert_eq!(shape(&following), shape(&new));
            for polled in &following.cards {
                for one in &polled.card.watched {
                    let earlier = before.get(&one.key(&polled.card.key));
                    prop_assert!(earlier.is_none_or(|&earlier| earlier == Arc::as_ptr(one)), "{:?} was made again", one.key(""));
                }
            }
        }
    }
}

#[test]
fn other_sources_look_into_devices_that_are_the_same() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x1");
    let devices = [Arc::new(device("card", "port.0", vec![fpga_errors::of_port(PORT), temperature::alarm(ALARM)]))];
    poller.watch(&devices, &[]);
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["port-error"])]);
    let held = Arc::clone(&poller.cards[0].card.watched[0]);
    assert_eq!(held.file, ALARM);
    poller.switch_off(&BTreeSet::from(["fpga-errors".to_owned()]));
    assert!(polled(&mut poller).is_empty());
    assert!(Arc::ptr_eq(&held, &poller.cards[0].card.watched[0]), "what still looks goes on");
    poller.switch_off(&BTreeSet::new());
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["port-error"])]);
}

#[test]
fn other_devices_than_before_are_all_looked_at() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(ALARM, "0");
    let watched = [device("card", "port.0", vec![temperature::alarm(ALARM)])];
    poller.watch_all(&watched);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.write(ALARM, "1");
    assert_eq!(regular(&mut poller, &[]), []);
    poller.watch_all(&watched);
    assert_eq!(regular(&mut poller, &[]).len(), 1);
}

#[test]
fn a_change_costs_a_look_at_the_card_and_at_no_other() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let sensor = |number: usize| format!("/sys/alarm{number}");
    let made = |number: usize| {
        let card = ["card", "card", "other"][number];
        Arc::new(device(card, &format!("port.{number}"), vec![temperature::alarm(sensor(number))]))
    };
    let set = |text: &str| (0..3).for_each(|number| tree.write(&sensor(number), text));
    set("0");
    let known = [0, 1, 2].map(made);
    poller.watch(&known, &[]);
    assert_eq!(regular(&mut poller, &[]), []);
    set("1");
    poller.watch(&[Arc::clone(&known[0]), made(1), Arc::clone(&known[2])], &[]);
    let expected = [("port.0", vec!["temperature"]), ("port.1", vec!["temperature"])];
    for _ in 0..2 {
        assert_eq!(reasons(&regular(&mut poller, &[])), expected);
    }
    assert_eq!(polled(&mut poller).len(), 3);
}

#[test]
fn a_device_that_no_poll_has_looked_at_before_another_change_is_still_new() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let made = |number: usize| Arc::new(device("card", &format!("port.{number}"), vec![temperature::alarm(ALARM)]));
    tree.write(ALARM, "0");
    poller.watch(&[made(0)], &[]);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.write(ALARM, "1");
    let other = made(0);
    poller.watch(&[Arc::clone(&other)], &[]);
    poller.watch(&[other, Arc::new(device("card", "port.1", Vec::new()))], &[]);
    assert_eq!(reasons(&regular(&mut poller, &[])), [("port.0", vec!["temperature"])]);
}

#[test]
fn a_device_that_a_scan_could_not_examine_is_looked_at_by_the_next_poll() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(ALARM, "0");
    let devices = [Arc::new(device("card", "port.0", vec![temperature::alarm(ALARM)]))];
    poller.watch(&devices, &[]);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.write(ALARM, "1");
    assert_eq!(regular(&mut poller, &[]), [], "it is not due");
    poller.watch(&[], &devices);
    assert_eq!(reasons(&regular(&mut poller, &[])), [("port.0", vec!["temperature"])]);
}

#[test]
fn a_device_that_was_not_examined_is_polled_until_a_scan_finds_it_in_another_form() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(ALARM, "1");
    let made = |id: &str, readings| Arc::new(device("card", id, readings));
    let kept = [made("port.0", vec![temperature::alarm(ALARM)])];
    let found = [made("port.1", Vec::new())];
    poller.watch(&found, &kept);
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["temperature"])]);
    poller.watch(&[Arc::clone(&found[0]), made("port.0", Vec::new())], &kept);
    assert_eq!(polled(&mut poller), []);
}
