//! The native client in a process of its own: the same cases as in `driver.py`.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use zodium_client::{Client, Options, Revision, TransactionOptions};
use zodium_types::{Address, Oid, Tid};

use super::job::{Job, Line};
use crate::commit::content::Content;
use crate::cpu::CpuTime;
use crate::options::{Checksum, ClientDriverOptions};
use crate::verifier::Sum;

const CACHE_BYTES: usize = 256 << 20;

/// Runs one case, and prints its results.
pub(crate) fn drive(options: &ClientDriverOptions) -> Result<()> {
    let driver = Driver { job: serde_json::from_str(&options.job).context("not a job")? };
    match driver.job.case.as_str() {
        "load" => driver.again_and_again(Driver::load),
        "threads" => driver.again_and_again(Driver::threads),
        "bulk" => driver.again_and_again(Driver::bulk),
        "commit" => driver.commit(),
        "iterate" => driver.iterate(),
        other => bail!("there is no case {other}"),
    }
}

struct Driver {
    job: Job,
}

/// Elapsed time, and processor time of the process.
struct Taken {
    time: Duration,
    cpu: Duration,
}

impl Driver {
    fn connect(&self) -> Result<Client> {
        let address = Address::Tcp { host: self.job.host.clone(), port: self.job.port };
        Ok(Client::connect(Options { cache_bytes: CACHE_BYTES, ..Options::new(address) })?)
    }

    fn oids(&self) -> Vec<Oid> {
        (0..self.job.objects).map(Oid).collect()
    }

    /// Repeats a pass until the measurement is long enough; the first pass warms up.
    fn again_and_again(&self, pass: fn(&Driver) -> Result<Vec<Line>>) -> Result<()> {
        pass(self)?;
        let began = Instant::now();
        loop {
            tell(&pass(self)?)?;
            if began.elapsed().as_secs_f64() > self.job.seconds {
                return Ok(());
            }
        }
    }

    fn load(&self) -> Result<Vec<Line>> {
        let (client, oids) = (self.connect()?, self.oids());
        let steps = ["uncached", "cached"].into_iter().map(|step| {
            let (data, taken) = timed(|| load_each(&client, &oids))?;
            Ok(line(step, &data, &taken))
        });
        steps.collect()
    }

    fn threads(&self) -> Result<Vec<Line>> {
        let (client, oids) = (self.connect()?, self.oids());
        let count = usize::from(self.job.threads).max(1);
        let [loaded, told] = [(); 2].map(|()| Barrier::new(count + 1));
        let (parts, taken) = std::thread::scope(|scope| {
            let start = |part: usize| {
                let mine: Vec<Oid> = oids.iter().skip(part).step_by(count).copied().collect();
                let (client, loaded, told) = (&client, &loaded, &told);
                scope.spawn(move || {
                    let data = load_each(client, &mine);
                    loaded.wait();
                    // A thread's processor time can be read only until it ends.
                    told.wait();
                    data
                })
            };
            let (running, taken) = timed(|| {
                let running: Vec<_> = (0..count).map(start).collect();
                loaded.wait();
                Ok(running)
            })?;
            told.wait();
            let joined = running.into_iter().map(|thread| match thread.join() {
                Ok(data) => data,
                Err(_) => bail!("a thread panicked"),
            });
            anyhow::Ok((joined.collect::<Result<Vec<_>>>()?, taken))
        })?;
        // Back in the order of the oids.
        let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
        let in_order = (0..oids.len()).map(|index| parts.get_mut(index % count)?.next());
        let data = in_order.collect::<Option<Vec<_>>>().context("objects are missing")?;
        Ok(vec![line("uncached", &data, &taken)])
    }

    fn bulk(&self) -> Result<Vec<Line>> {
        let (client, oids) = (self.connect()?, self.oids());
        let load_all = || {
            let loaded = client.load_many(&oids, Tid::MAX)?;
            loaded.into_iter().map(|loaded| data_of(loaded?)).collect::<Result<Vec<_>>>()
        };
        let (data, taken) = timed(load_all)?;
        Ok(vec![line("bulk", &data, &taken)])
    }

    fn commit(&self) -> Result<()> {
        let (client, content) = (self.connect()?, Content::new(self.job.bytes));
        let new_oids = (0..self.job.objects).map(|_| client.new_oid());
        let oids = new_oids.collect::<Result<Vec<_>, _>>()?;
        let (mut serial, mut count) = (Tid::ZERO, 0);
        let mut commit_for = |seconds: f64| {
            let (mut done, began) = (0, Instant::now());
            while done == 0 || began.elapsed().as_secs_f64() < seconds {
                count += 1;
                let mut transaction = client.begin(&TransactionOptions {
                    user: b"user".to_vec(),
                    description: b"a commit".to_vec(),
                    ..TransactionOptions::default()
                })?;
                for oid in &oids {
                    transaction.store(*oid, serial, content.data(*oid, count).into())?;
                }
                ensure!(transaction.vote()?.conflicts.is_empty(), "another client commits");
                serial = transaction.finish(|_| ())?;
                done += 1;
            }
            Ok(done)
        };
        commit_for(self.job.warm_up)?;
        let (done, taken) = timed(|| commit_for(self.job.seconds))?;
        drop(client);
        let client = self.connect()?;
        for oid in oids {
            let found = client.load_current(oid)?;
            let is_last = content.check(oid, &found.data)? == count && found.serial == serial;
            ensure!(is_last, "the last commit of object {oid} is not there");
        }
        let line = line("commit", &[], &taken);
        tell(&[Line { count: done, ..line }])
    }

    fn iterate(&self) -> Result<()> {
        let client = self.connect()?;
        let last = u64::from_str_radix(&self.job.last_tid, 16).context("not a tid")?;
        let patience = Duration::from_secs(self.job.patience.into());
        let records = || {
            let (mut data, began) = (Vec::new(), Instant::now());
            for transaction in client.iterate(None, Some(Tid(last)))? {
                let records = transaction?.records.into_iter();
                data.extend(records.map(|record| record.data.unwrap_or_default()));
                if began.elapsed() > patience {
                    break;
                }
            }
            Ok(data)
        };
        let (data, taken) = timed(records)?;
        tell(&[line("record", &data, &taken)])
    }
}

fn load_each(client: &Client, oids: &[Oid]) -> Result<Vec<Bytes>> {
    oids.iter().map(|oid| data_of(client.load_before(*oid, Tid::MAX)?)).collect()
}

fn data_of(loaded: Option<Revision>) -> Result<Bytes> {
    Ok(loaded.context("an object is not there")?.data)
}

fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<(T, Taken)> {
    let (cpu, began) = (cpu_time()?, Instant::now());
    let result = run()?;
    let time = began.elapsed();
    Ok((result, Taken { time, cpu: cpu_time()?.since(&cpu) }))
}

/// Processor time of all threads; yields first, so that the calling thread's time is up to date.
fn cpu_time() -> Result<CpuTime> {
    std::thread::yield_now();
    Ok(CpuTime::of_process(std::process::id())?)
}

fn line(step: &str, data: &[Bytes], taken: &Taken) -> Line {
    let mut sum = Sum::new(Checksum::Crc32);
    data.iter().for_each(|data| sum.update(data));
    Line {
        step: step.to_owned(),
        count: data.len() as u64,
        seconds: taken.time.as_secs_f64(),
        cpu_seconds: taken.cpu.as_secs_f64(),
        crc32: sum.finish(),
        passes: 1,
    }
}

fn tell(lines: &[Line]) -> Result<()> {
    for line in lines {
        println!("{}", serde_json::to_string(line)?);
    }
    Ok(())
}
