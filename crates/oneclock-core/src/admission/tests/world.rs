//! A resource with so many servers and a line of its own before them, callers that come at random and leave at their deadline,
//! and an `Admission` between. Numbers are drawn from a fixed seed: the same each time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// What callers ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    pub(super) per_second: f64,
    pub(super) takes: Duration, // on average
    pub(super) varies: bool,    // exponentially, else not at all
    pub(super) budget: Duration,
}

/// What became of those of one sort that came in a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) came: u32,
    pub(super) started: u32,
    pub(super) in_time: u32,
}

/// Who stands before the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Ours,
    /// What everybody writes first: it starts if what it has left is what such work needs.
    EstimateOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes(usize),
    Due(u32),
    Done(u32),
    CutOff(u32),
}

struct Job {
    sort: usize,
    deadline: Tick,
    key: Option<Key>,
    started: Option<Tick>,
    over: bool,
}

pub(super) struct World {
    pub(super) admission: Admission<u32>,
    pub(super) servers: usize,
    pub(super) slower: u32, // everything takes so many times as long
    pub(super) most_waited: u32,
    gate: Gate,
    sorts: Vec<(Sort, Arc<Class>, Fate)>,
    jobs: Vec<Job>,
    serving: Vec<u32>,
    line: VecDeque<u32>, // has a place, and waits for a server
    events: BinaryHeap<Reverse<(Tick, usize, Event)>>,
    written: usize, // events so far: of those at one moment the first that was written down comes first
    now: Tick,
    draws: u64,
}

impl World {
    pub(super) fn new(settings: Settings, servers: usize, gate: Gate, sorts: &[Sort]) -> Self {
        let admission = Admission::new(settings);
        let sorts: Vec<_> = sorts.iter().map(|sort| (*sort, admission.class(), Fate::default())).collect();
        let mut world = Self {
            admission,
            servers,
            slower: 1,
            most_waited: 0,
            gate,
            sorts,
            jobs: Vec::new(),
            serving: Vec::new(),
            line: VecDeque::new(),
            events: BinaryHeap::new(),
            written: 0,
            now: at(1),
            draws: 7,
        };
        (0..world.sorts.len()).for_each(|sort| world.next_comes(sort));
        world
    }

    /// All ask for the same work: one estimate for all.
    pub(super) fn of_one_class(mut self) -> Self {
        let class = Arc::clone(&self.sorts[0].1);
        self.sorts.iter_mut().for_each(|(_, its, _)| *its = Arc::clone(&class));
        self
    }

    /// What becomes of those of each sort that come in the next `seconds`.
    pub(super) fn goes_on(&mut self, seconds: u64) -> Vec<Fate> {
        self.sorts.iter_mut().for_each(|(.., fate)| *fate = Fate::default());
        let end = self.now + Duration::from_secs(seconds);
        while let Some(Reverse((then, _, event))) = self.events.pop() {
            self.now = then;
            match event {
                Event::Comes(sort) => self.comes(sort),
                Event::Due(job) => self.due(job),
                Event::Done(job) => self.over(job, Sample::Whole),
                Event::CutOff(job) => self.over(job, Sample::CutOff),
            }
            self.most_waited = self.most_waited.max(self.admission.waiting());
            if then >= end {
                break;
            }
        }
        self.sorts.iter().map(|(.., fate)| *fate).collect()
    }

    pub(super) fn load(&mut self, sort: usize, per_second: f64) {
        self.sorts[sort].0.per_second = per_second;
    }

    fn at(&mut self, then: Tick, event: Event) {
        self.written += 1;
        self.events.push(Reverse((then, self.written, event)));
    }

    /// Above 0, up to 1 (SplitMix64).
    fn draw(&mut self) -> f64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.draws;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from((z ^ (z >> 31)) >> 33).expect("31 bits") + 1) / f64::from(1_u32 << 31)
    }

    fn next_comes(&mut self, sort: usize) {
        let gap = -self.draw().ln() / self.sorts[sort].0.per_second;
        self.at(self.now + Duration::from_secs_f64(gap), Event::Comes(sort));
    }

    fn comes(&mut self, sort: usize) {
        self.next_comes(sort);
        let (Sort { budget, .. }, class, fate) = &mut self.sorts[sort];
        fate.came += 1;
        let (deadline, class) = (Deadline::after(self.now, *budget), Arc::clone(class));
        let name = u32::try_from(self.jobs.len()).expect("not so many");
        self.jobs.push(Job { sort, deadline: deadline.tick(), key: None, started: None, over: false });
        if self.gate == Gate::EstimateOnly && deadline.remaining(self.now) < class.estimate().needed() {
            return;
        }
        match self.admission.arrive(&Asking::new(&class, deadline), name, self.now) {
            Arrival::Runs { item, .. } => self.starts(item),
            Arrival::Waits { key, start_by, evicted } => {
                self.jobs[name as usize].key = Some(key);
                self.at(start_by.max(self.now), Event::Due(name));
                if let Some((evicted, _)) = evicted {
                    self.jobs[evicted as usize].over = true;
                }
            }
            Arrival::Refused(..) => {}
        }
    }

    fn due(&mut self, name: u32) {
        let job = &mut self.jobs[name as usize];
        let Some(key) = job.key.filter(|_| !job.over && job.started.is_none()) else { return };
        match self.admission.due(key, self.now) {
            Due::Refused(..) => job.over = true,
            Due::Later(then) => self.at(then, Event::Due(name)),
            Due::Gone => {}
        }
    }

    fn starts(&mut self, name: u32) {
        let (now, job) = (self.now, &mut self.jobs[name as usize]);
        assert!(now < job.deadline, "an expired one started");
        (job.started, job.over) = (Some(now), false);
        self.sorts[job.sort].2.started += 1;
        let deadline = job.deadline;
        self.at(deadline, Event::CutOff(name));
        self.line.push_back(name);
        self.serve();
    }

    fn serve(&mut self) {
        while self.serving.len() < self.servers {
            let Some(name) = self.line.pop_front() else { return };
            let Sort { takes, varies, .. } = self.sorts[self.jobs[name as usize].sort].0;
            let times = if varies { -self.draw().ln() } else { 1.0 };
            self.serving.push(name);
            self.at(self.now + (takes * self.slower).mul_f64(times), Event::Done(name));
        }
    }

    fn over(&mut self, name: u32, sample: Sample) {
        let now = self.now;
        let job = &mut self.jobs[name as usize];
        let Some(started) = job.started.filter(|_| !job.over) else { return };
        job.over = true;
        let (_, class, fate) = &mut self.sorts[job.sort];
        let sample = if now >= job.deadline { Sample::CutOff } else { sample };
        fate.in_time += u32::from(sample == Sample::Whole);
        class.took(now.since(started), sample, now);
        self.serving.retain(|it| *it != name);
        self.line.retain(|it| *it != name);
        let (run, not) = told(self.admission.vacate(now.since(started), now));
        not.into_iter().for_each(|(who, _)| self.jobs[who as usize].over = true);
        run.into_iter().for_each(|who| self.starts(who));
        self.serve();
    }
}

impl Fate {
    pub(super) fn success(self) -> f64 {
        f64::from(self.in_time) / f64::from(self.came.max(1))
    }

    pub(super) fn share_started(self) -> f64 {
        f64::from(self.started) / f64::from(self.came.max(1))
    }
}
