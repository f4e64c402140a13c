use std::sync::mpsc;
use std::thread;

use super::*;

const SHORT: Duration = Duration::from_millis(100);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what `each` asks for")]
fn key(unit: &usize) -> String {
    format!("card{unit}")
}

/// A function for units of work, and a gate: units with these numbers wait until it is dropped.
fn gated(hung: Vec<usize>) -> (impl Fn(usize) -> usize + Send + Sync + Clone + 'static, mpsc::Sender<()>) {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Arc::new(Mutex::new(receiver));
    let work = move |unit: usize| {
        if hung.contains(&unit) {
            let _ = lock(&receiver).recv();
        }
        unit * 10
    };
    (work, sender)
}

fn eventually(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "did not happen");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn prompt_units_are_answered_in_order_by_one_thread() {
    let mut fence = Fence::new(Duration::from_secs(60));
    fence.patience = Duration::from_secs(30);
    for _ in 0..3 {
        let threads = fence.each((0..200).collect(), key, |_| thread::current().id());
        assert!(threads.iter().all(|outcome| *outcome == threads[0] && matches!(outcome, Outcome::Done(_))));
    }
    assert!(lock(&fence.threads.state).threads <= STANDING_WORKERS);
    assert_eq!(fence.each(Vec::new(), key, |unit| unit), []);
}

#[test]
fn a_unit_that_hangs_costs_only_itself() {
    let fence = Fence::new(SHORT);
    let (work, gate) = gated(vec![1]);
    let outcomes = fence.each(vec![0, 1, 2], key, work);
    assert_eq!(outcomes, [Outcome::Done(0), Outcome::Overdue, Outcome::Done(20)]);
    drop(gate);
}

#[test]
fn another_deadline_counts_from_the_next_call_on_and_what_hangs_is_not_forgotten() {
    let fence = Fence::new(SHORT);
    let (work, gate) = gated(vec![1]);
    assert_eq!(fence.each(vec![1], key, work.clone()), [Outcome::Overdue]);
    fence.set_deadline(Duration::from_secs(60));
    let start = Instant::now();
    assert_eq!(fence.each(vec![1, 2], key, work), [Outcome::Overdue, Outcome::Done(20)]);
    assert!(start.elapsed() < Duration::from_secs(30), "its thread still hangs");
    assert_eq!(fence.each(vec![3], key, |_| thread::sleep(2 * SHORT)), [Outcome::Done(())]);
    drop(gate);
}

#[test]
fn a_hanging_unit_is_answered_at_once_until_its_thread_comes_back() {
    let fence = Fence::new(SHORT);
    let (work, gate) = gated(vec![1]);
    fence.each(vec![1], key, work.clone());
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(fence.each(vec![1, 2], key, work.clone()), [Outcome::Overdue, Outcome::Done(20)]);
    }
    assert!(start.elapsed() < SHORT * 20, "waited again for what is known to hang");
    assert!(lock(&fence.threads.state).threads <= 1 + STANDING_WORKERS);
    drop(gate);
    eventually(|| lock(&fence.threads.state).stuck.is_empty());
    assert_eq!(fence.each(vec![1], key, work), [Outcome::Done(10)]);
}

#[test]
fn many_units_that_hang_are_waited_for_side_by_side() {
    let deadline = Duration::from_secs(1);
    let fence = Fence::new(deadline);
    let (work, gate) = gated((0..40).collect());
    let start = Instant::now();
    let outcomes = fence.each((0..41).collect(), key, work);
    let elapsed = start.elapsed();
    assert!(outcomes[..40].iter().all(|outcome| *outcome == Outcome::Overdue));
    assert_eq!(outcomes[40], Outcome::Done(400));
    assert!(elapsed < deadline * 3, "one after another they take {:?}, these took {elapsed:?}", deadline * 40);
    drop(gate);
}

#[test]
fn units_that_use_the_fence_themselves_wait_side_by_side_too() {
    let fence = Arc::new(Fence::new(SHORT * 10));
    let (work, gate) = gated(vec![0, 3, 6, 9]);
    let (within, cards) = (Arc::clone(&fence), work);
    let vendor = move |first: usize| within.each(vec![first, first + 1], key, cards.clone());
    let start = Instant::now();
    let outcomes =
        fence.each_within(Duration::from_secs(60), vec![0, 3, 6, 9], |n| format!("vendor{n}"), vendor, &|| {});
    assert!(start.elapsed() < SHORT * 30, "took {:?}", start.elapsed());
    let expected = |first: usize| Outcome::Done(vec![Outcome::Overdue, Outcome::Done(first * 10 + 10)]);
    assert_eq!(outcomes, [0, 3, 6, 9].map(expected));
    drop(gate);
}

#[test]
fn the_callers_heart_beats_while_it_waits() {
    let deadline = BEAT_PERIOD * 4;
    let fence = Fence::new(deadline);
    let (work, gate) = gated(vec![0]);
    let beats = Mutex::new(vec![Instant::now()]);
    fence.each_within(deadline, vec![0], key, work, &|| lock(&beats).push(Instant::now()));
    let beats = beats.into_inner().unwrap();
    assert!(beats.len() >= 3, "{} beats in {deadline:?}", beats.len());
    drop(gate);
}

#[test]
fn a_wait_ends_when_the_caller_wants_no_more_of_it() {
    let fence = Fence::new(SHORT);
    let (work, gate) = gated(vec![0]);
    let beats = Mutex::new(0);
    let three_times = || {
        *lock(&beats) += 1;
        *lock(&beats) < 3
    };
    let outcomes = fence.each_while(Duration::from_secs(60), vec![0], key, work, (SHORT, &three_times));
    assert_eq!((outcomes, *lock(&beats)), (vec![Outcome::Overdue], 3));
    drop(gate);
}

#[test]
fn a_slow_unit_within_its_deadline_is_answered() {
    let fence = Fence::new(Duration::from_secs(10));
    let slow = |unit: usize| {
        if unit == 0 {
            thread::sleep(PATIENCE * 3);
        }
        unit
    };
    assert_eq!(fence.each(vec![0, 1], key, slow), [Outcome::Done(0), Outcome::Done(1)]);
}

#[test]
fn the_number_of_hanging_threads_is_bounded() {
    let fence = Fence::new(Duration::from_millis(20));
    let (work, gate) = gated((0..100).collect());
    let outcomes = fence.each((0..100).collect(), key, work.clone());
    let count = |wanted: &Outcome<usize>| outcomes.iter().filter(|outcome| *outcome == wanted).count();
    assert_eq!((count(&Outcome::Overdue), count(&Outcome::full())), (MOST_WORKERS, 100 - MOST_WORKERS));
    assert_eq!(lock(&fence.threads.state).threads, MOST_WORKERS);
    assert_eq!(fence.each(vec![100], key, work.clone()), [Outcome::full()]);
    drop(gate);
    eventually(|| lock(&fence.threads.state).stuck.is_empty());
    assert_eq!(fence.each(vec![100], key, work), [Outcome::Done(1000)]);
}

#[test]
fn a_panic_is_an_answer() {
    let fence = Fence::new(Duration::from_secs(5));
    let outcomes = fence.each(vec![0, 1, 2], key, |unit| {
        assert!(unit != 1, "unit {unit} is bad");
        unit
    });
    assert_eq!(outcomes, [Outcome::Done(0), Outcome::Panicked("unit 1 is bad".to_owned()), Outcome::Done(2)]);
}

#[test]
fn threads_end_with_their_fence() {
    let fence = Fence::new(Duration::from_secs(5));
    fence.each(vec![1], key, |unit| unit);
    let threads = Arc::clone(&fence.threads);
    drop(fence);
    eventually(|| lock(&threads.state).threads == 0);
}

/// Defect: a thread that the kernel did not start was told as drivers that hang, with "look for blocked tasks".
#[test]
fn a_thread_that_the_kernel_refuses_is_no_driver_that_hangs() {
    let words = no_thread(&io::Error::from_raw_os_error(rustix::io::Errno::AGAIN.raw_os_error()));
    assert_eq!(
        words,
        "not examined: no thread: Resource temporarily unavailable (os error 11); raise the pod's pids limit, or the \
         unit's TasksMax"
    );
}
