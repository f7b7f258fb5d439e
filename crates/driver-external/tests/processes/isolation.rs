//! What a driver gets, and what it does not get.

use std::{collections::BTreeMap, fs};

use ccm_drivers::contract::Driver;

use crate::lab::{Lab, open, run, start};

crate::tests![
    a_driver_has_no_environment_and_no_secret_but_its_request,
    a_driver_has_limits,
    a_driver_has_no_other_file,
    what_was_verified_is_what_runs,
    nobody_can_write_to_the_bytes_that_run,
];

/// The names of the regions by their ids.
fn regions(driver: &dyn Driver) -> BTreeMap<String, String> {
    run(driver.topology().regions()).unwrap().into_iter().map(|region| (region.id, region.name)).collect()
}

fn a_driver_has_no_environment_and_no_secret_but_its_request() {
    let lab = Lab::new();
    drop(lab.python(
        "read = lambda path: open(path, 'rb').read().decode().replace('\\0', ' ').strip()\n\
         regions(environment=read('/proc/self/environ'), arguments=read('/proc/self/cmdline'),\n    \
             supervisor=read(f'/proc/{os.getppid()}/environ') + read(f'/proc/{os.getppid()}/cmdline'),\n    \
             token=request['settings']['token'], folder=os.getcwd(), session=os.getsid(0) == os.getppid())",
    ));
    let program = start(&lab.folder().join("cloud.py"));
    let output = program.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let all: BTreeMap<_, _> = text.lines().map(|line| line.split_once('=').unwrap()).collect();
    assert_eq!(all["environment"], "HOME=/nonexistent LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin");
    assert_eq!(all["token"], "token-of-the-cloud");
    assert_eq!((all["folder"], all["session"]), ("/", "True"));
    for place in ["environment", "arguments", "supervisor"] {
        for secret in ["secret-of-the-program", "token-of-the-cloud"] {
            assert!(!all[place].contains(secret), "{place}: {}", all[place]);
        }
    }
    assert!(all["supervisor"].ends_with("--supervise-driver"), "{}", all["supervisor"]);
}

fn a_driver_has_limits() {
    let driver = Lab::new().python(
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n\
         limits = {line[:26].strip(): line[26:].split()[:2] for line in open('/proc/self/limits')}\n\
         name = lambda text: ''.join(text.split())\n\
         regions(privileges=status['NoNewPrivs'].strip(), umask=status['Umask'].strip(), nice=os.nice(0),\n    \
             **{name(limit): ' '.join(limits[limit]) for limit in limits})",
    );
    let all = regions(&*open(&driver, &[]));
    assert_eq!((all["privileges"].as_str(), all["umask"].as_str()), ("1", "0077"));
    assert_eq!(all["nice"], "10");
    assert!(["0 0", "1 1"].contains(&all["Maxcorefilesize"].as_str()), "{all:?}");
    let (file, data, files) = (256 << 20, 1 << 30, 1024);
    for (limit, most) in [("Maxfilesize", file), ("Maxdatasize", data), ("Maxopenfiles", files)] {
        assert_eq!(all[limit], format!("{most} {most}"), "{limit}");
    }
}

fn a_driver_has_no_other_file() {
    // What this program itself was started with, and has to pass on.
    let own: Vec<_> =
        fs::read_dir("/proc/self/fd").unwrap().flatten().flat_map(|file| fs::read_link(file.path())).collect();
    let driver = Lab::new().python(
        "links = {}\n\
         for file in os.listdir('/proc/self/fd'):\n    \
             try: links['file' + file] = os.readlink('/proc/self/fd/' + file)\n    \
             except OSError: pass\n\
         regions(**links)",
    );
    let mut all = regions(&*open(&driver, &[]));
    all.retain(|_, link| !own.iter().any(|own| own.as_os_str() == link.as_str()));
    for standard in ["file0", "file1", "file2"] {
        assert!(all.remove(standard).is_some_and(|link| link.starts_with("pipe:")), "{standard}");
    }
    // The socket to the program is not among them.
    let is_program = |link: &String| link.starts_with("/memfd:cloud.py");
    assert!(!all.is_empty() && all.values().all(is_program), "{all:?}");
}

fn what_was_verified_is_what_runs() {
    let lab = Lab::new();
    let driver = lab.python("regions(version='verified')");
    let path = lab.folder().join("cloud.py");
    let changed = fs::read_to_string(&path).unwrap().replace("verified", "changed!");
    // In place, so that the file is the same one.
    fs::write(&path, changed).unwrap();
    assert_eq!(regions(&*open(&driver, &[]))["version"], "verified");
    fs::remove_file(&path).unwrap();
    assert_eq!(regions(&*open(&driver, &[]))["version"], "verified");
}

fn nobody_can_write_to_the_bytes_that_run() {
    let driver = Lab::new().python(
        "import fcntl, mmap\n\
         path = sys.argv[0]\n\
         def tried(what):\n    \
             try: return what() and 'done'\n    \
             except OSError as error: return error.strerror\n\
         file = os.open(path, os.O_RDWR)\n\
         size = os.fstat(file).st_size\n\
         regions(path=path, write=tried(lambda: os.pwrite(file, b'x', 0)), grow=tried(lambda: os.ftruncate(file, size + 1)),\n    \
             shrink=tried(lambda: os.ftruncate(file, 0)), map=tried(lambda: mmap.mmap(file, size)),\n    \
             seal=tried(lambda: fcntl.fcntl(file, fcntl.F_ADD_SEALS, 0)), seals=fcntl.fcntl(file, fcntl.F_GET_SEALS))",
    );
    let all = regions(&*open(&driver, &[]));
    assert!(all["path"].starts_with("/proc/self/fd/"), "{all:?}");
    for what in ["write", "grow", "shrink", "map", "seal"] {
        assert_eq!(all[what], "Operation not permitted", "{what}");
    }
    // All but that for later writes, which the one for all writes includes.
    assert_eq!(all["seals"], "15");
    assert_eq!(regions(&*open(&driver, &[])), all);
}
