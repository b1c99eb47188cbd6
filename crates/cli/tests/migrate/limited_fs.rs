//! A filesystem in memory that can do less than the kernel's own: one that folds case, keeps coarse
//! times or refuses to give files away, as network and foreign filesystems do. Like those, it knows
//! no flags of a rename: it answers EINVAL to them.

use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The restrictions of a filesystem.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Names that differ in case only are the same name.
    pub(crate) folds_case: bool,
    /// Names that differ in Unicode normalisation only are the same name (of some letters).
    pub(crate) folds_unicode: bool,
    /// Letters that fold to several ones do so as well, and a soft hyphen is ignored.
    pub(crate) folds_fully: bool,
    pub(crate) longest_name: usize,
    /// An extended attribute that is refused, and the error.
    pub(crate) refused_xattr: Option<(&'static str, i32)>,
    /// A user who has no number there.
    pub(crate) unmapped_owner: Option<u32>,
    /// How far its clock is behind.
    pub(crate) behind: Duration,
    /// Times are cut off to a multiple of this.
    pub(crate) granularity: Duration,
    pub(crate) can_chown: bool,
    pub(crate) can_chmod: bool,
    pub(crate) has_xattrs: bool,
    pub(crate) has_symlinks: bool,
    pub(crate) has_hard_links: bool,
    /// A name that nothing can be renamed to.
    pub(crate) refused_name: Option<&'static str>,
    /// Free bytes that it reports.
    pub(crate) free: u64,
}

impl Limits {
    /// A filesystem that can do everything.
    pub(crate) const NONE: Limits = Limits {
        folds_case: false,
        folds_unicode: false,
        folds_fully: false,
        longest_name: 255,
        refused_xattr: None,
        unmapped_owner: None,
        behind: Duration::ZERO,
        granularity: Duration::from_nanos(1),
        can_chown: true,
        can_chmod: true,
        has_xattrs: true,
        has_symlinks: true,
        has_hard_links: true,
        refused_name: None,
        free: 1 << 30,
    };
}

/// Mounts it on a new folder, until the session is dropped.
pub(crate) fn mount(at: &Path, limits: Limits) -> BackgroundSession {
    std::fs::create_dir_all(at).expect("the mount point can be made");
    let options = [MountOption::FSName("limited".into())];
    let filesystem = LimitedFs::new(limits);
    fuser::spawn_mount2(filesystem, at, &options).expect("FUSE works here")
}

const TTL: Duration = Duration::ZERO;

struct Node {
    attr: FileAttr,
    /// Of a file, or the target of a symlink.
    data: Vec<u8>,
    /// Of a folder: by folded name, the name as given and the node.
    children: BTreeMap<OsString, (OsString, u64)>,
    xattrs: BTreeMap<OsString, Vec<u8>>,
}

struct LimitedFs {
    limits: Limits,
    nodes: BTreeMap<u64, Node>,
    last: u64,
}

type Answer<T> = Result<T, i32>;

impl LimitedFs {
    fn new(limits: Limits) -> LimitedFs {
        let mut new = LimitedFs {
            limits,
            nodes: BTreeMap::new(),
            last: 0,
        };
        new.add(FileType::Directory, 0o755, 0);
        new
    }

    fn add(&mut self, kind: FileType, mode: u32, device: u32) -> FileAttr {
        self.last += 1;
        let now = self.now();
        let attr = FileAttr {
            ino: self.last,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: device,
            blksize: 4096,
            flags: 0,
        };
        let node = Node {
            attr,
            data: Vec::new(),
            children: BTreeMap::new(),
            xattrs: BTreeMap::new(),
        };
        self.nodes.insert(self.last, node);
        attr
    }

    fn now(&self) -> SystemTime {
        self.cut(SystemTime::now() - self.limits.behind)
    }

    /// A time as it is kept.
    fn cut(&self, time: SystemTime) -> SystemTime {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let step = self.limits.granularity.as_nanos();
        let kept = since.as_nanos() / step * step;
        UNIX_EPOCH + Duration::from_nanos(u64::try_from(kept).unwrap_or(u64::MAX))
    }

    fn fold(&self, name: &OsStr) -> OsString {
        let Some(text) = name.to_str() else {
            return name.to_owned();
        };
        let mut text = text.to_owned();
        if self.limits.folds_unicode {
            text = text
                .replace("e\u{301}", "\u{e9}")
                .replace("E\u{301}", "\u{c9}");
        }
        if self.limits.folds_fully {
            text = text.replace('\u{ad}', "").to_uppercase();
        }
        if self.limits.folds_case {
            text = text.to_lowercase();
        }
        text.into()
    }

    fn node(&mut self, ino: u64) -> Answer<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(libc::ENOENT)
    }

    fn find(&mut self, parent: u64, name: &OsStr) -> Answer<u64> {
        let key = self.fold(name);
        let found = self.node(parent)?.children.get(&key).map(|(_, ino)| *ino);
        found.ok_or(libc::ENOENT)
    }

    fn attr(&mut self, ino: u64) -> Answer<FileAttr> {
        self.node(ino).map(|node| node.attr)
    }

    fn link_name(&mut self, parent: u64, name: &OsStr, ino: u64) -> Answer<()> {
        let (key, now) = (self.fold(name), self.now());
        let folder = self.node(parent)?;
        folder.attr.mtime = now;
        let before = folder.children.get(&key).cloned();
        // A name that exists keeps its spelling.
        let spelling = before
            .as_ref()
            .map_or(name, |(spelling, _)| spelling)
            .to_owned();
        folder.children.insert(key, (spelling, ino));
        if let Some((_, replaced)) = before {
            self.drop_link(replaced);
        }
        Ok(())
    }

    fn drop_link(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.attr.nlink = node.attr.nlink.saturating_sub(1);
        }
    }

    fn make(
        &mut self,
        parent: u64,
        name: &OsStr,
        kind: FileType,
        mode: u32,
        device: u32,
    ) -> Answer<FileAttr> {
        if self.find(parent, name).is_ok() {
            return Err(libc::EEXIST);
        }
        if name.len() > self.limits.longest_name {
            return Err(libc::ENAMETOOLONG);
        }
        let attr = self.add(kind, mode, device);
        self.link_name(parent, name, attr.ino)?;
        Ok(attr)
    }

    fn remove(&mut self, parent: u64, name: &OsStr) -> Answer<()> {
        let ino = self.find(parent, name)?;
        if !self.node(ino)?.children.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        let key = self.fold(name);
        self.node(parent)?.children.remove(&key);
        self.drop_link(ino);
        Ok(())
    }

    fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Answer<()> {
        let ino = self.find(from.0, from.1)?;
        if self.limits.refused_name.is_some_and(|name| to.1 == name) {
            return Err(libc::EPERM);
        }
        if to.1.len() > self.limits.longest_name {
            return Err(libc::ENAMETOOLONG);
        }
        if self.find(to.0, to.1) == Ok(ino) {
            return Ok(());
        }
        let key = self.fold(from.1);
        self.node(from.0)?.children.remove(&key);
        self.link_name(to.0, to.1, ino)
    }

    fn set(
        &mut self,
        ino: u64,
        mode: Option<u32>,
        owner: (Option<u32>, Option<u32>),
        size: Option<u64>,
        mtime: Option<TimeOrNow>,
    ) -> Answer<FileAttr> {
        let limits = self.limits;
        let mtime = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => self.cut(time),
            TimeOrNow::Now => self.now(),
        });
        let node = self.node(ino)?;
        let (uid, gid) = owner;
        let gives_away = uid.is_some_and(|uid| uid != node.attr.uid)
            || gid.is_some_and(|gid| gid != node.attr.gid);
        if gives_away && !limits.can_chown {
            return Err(libc::EPERM);
        }
        if uid.is_some() && uid == limits.unmapped_owner {
            return Err(libc::EINVAL);
        }
        let mode = mode.map(|mode| (mode & 0o7777) as u16);
        if mode.is_some_and(|mode| mode != node.attr.perm) && !limits.can_chmod {
            return Err(libc::EPERM);
        }
        node.attr.uid = uid.unwrap_or(node.attr.uid);
        node.attr.gid = gid.unwrap_or(node.attr.gid);
        node.attr.perm = mode.unwrap_or(node.attr.perm);
        node.attr.mtime = mtime.unwrap_or(node.attr.mtime);
        if let Some(size) = size {
            node.data.resize(usize::try_from(size).unwrap_or(0), 0);
            node.attr.size = size;
        }
        Ok(node.attr)
    }

    fn write_at(&mut self, ino: u64, offset: i64, data: &[u8]) -> Answer<u32> {
        let now = self.now();
        let node = self.node(ino)?;
        let start = usize::try_from(offset).map_err(|_| libc::EINVAL)?;
        if node.data.len() < start + data.len() {
            node.data.resize(start + data.len(), 0);
        }
        node.data[start..start + data.len()].copy_from_slice(data);
        node.attr.size = node.data.len() as u64;
        node.attr.mtime = now;
        Ok(data.len() as u32)
    }

    fn xattrs(&mut self, ino: u64) -> Answer<&mut BTreeMap<OsString, Vec<u8>>> {
        match self.limits.has_xattrs {
            true => Ok(&mut self.node(ino)?.xattrs),
            false => Err(libc::EOPNOTSUPP),
        }
    }
}

fn answer_entry(reply: ReplyEntry, answer: Answer<FileAttr>) {
    match answer {
        Ok(attr) => reply.entry(&TTL, &attr, 0),
        Err(errno) => reply.error(errno),
    }
}

fn answer_attr(reply: ReplyAttr, answer: Answer<FileAttr>) {
    match answer {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(errno) => reply.error(errno),
    }
}

fn answer_empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn answer_xattr(reply: ReplyXattr, size: u32, answer: Answer<Vec<u8>>) {
    match answer {
        Err(errno) => reply.error(errno),
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(libc::ERANGE),
        Ok(bytes) => reply.data(&bytes),
    }
}

fn kind_of(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        libc::S_IFSOCK => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

impl Filesystem for LimitedFs {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let found = self.find(parent, name).and_then(|ino| self.attr(ino));
        answer_entry(reply, found);
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        answer_attr(reply, self.attr(ino));
    }

    fn setattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<u64>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        answer_attr(reply, self.set(ino, mode, (uid, gid), size, mtime));
    }

    fn readlink(&mut self, _: &Request<'_>, ino: u64, reply: ReplyData) {
        match self.node(ino) {
            Ok(node) => reply.data(&node.data),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &mut self,
        _: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(parent, name, kind_of(mode), mode & !umask, device);
        answer_entry(reply, made);
    }

    fn mkdir(
        &mut self,
        _: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(parent, name, FileType::Directory, mode & !umask, 0);
        answer_entry(reply, made);
    }

    fn unlink(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.remove(parent, name));
    }

    fn rmdir(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.remove(parent, name));
    }

    fn symlink(
        &mut self,
        _: &Request<'_>,
        parent: u64,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        if !self.limits.has_symlinks {
            return reply.error(libc::EPERM);
        }
        let made = self.make(parent, name, FileType::Symlink, 0o777, 0);
        let made = made.and_then(|attr| {
            let node = self.node(attr.ino)?;
            node.data = target.as_os_str().as_encoded_bytes().to_vec();
            node.attr.size = node.data.len() as u64;
            Ok(node.attr)
        });
        answer_entry(reply, made);
    }

    fn rename(
        &mut self,
        _: &Request<'_>,
        parent: u64,
        name: &OsStr,
        new_parent: u64,
        new_name: &OsStr,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let renamed = LimitedFs::rename(self, (parent, name), (new_parent, new_name));
        answer_empty(reply, renamed);
    }

    fn link(&mut self, _: &Request<'_>, ino: u64, parent: u64, name: &OsStr, reply: ReplyEntry) {
        if !self.limits.has_hard_links {
            return reply.error(libc::EPERM);
        }
        if self.find(parent, name).is_ok() {
            return reply.error(libc::EEXIST);
        }
        let linked = self.link_name(parent, name, ino).and_then(|()| {
            let node = self.node(ino)?;
            node.attr.nlink += 1;
            Ok(node.attr)
        });
        answer_entry(reply, linked);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        match self.node(ino) {
            Ok(node) => {
                let start = usize::try_from(offset).unwrap_or(0).min(node.data.len());
                let end = (start + size as usize).min(node.data.len());
                reply.data(&node.data[start..end]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        match self.write_at(ino, offset, data) {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &mut self,
        _: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(parent, name, FileType::RegularFile, mode & !umask, 0) {
            Ok(attr) => reply.created(&TTL, &attr, 0, 0, 0),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&mut self, _: &Request<'_>, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&mut self, _: &Request<'_>, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: i64,
        mut reply: ReplyDirectory,
    ) {
        let Some(folder) = self.nodes.get(&ino) else {
            return reply.error(libc::ENOENT);
        };
        let dots = [".", ".."].map(|name| (OsString::from(name), ino));
        let children = folder.children.values().cloned();
        let skip = usize::try_from(offset).unwrap_or(0);
        for (at, (name, ino)) in dots.into_iter().chain(children).enumerate().skip(skip) {
            let kind = self.nodes[&ino].attr.kind;
            if reply.add(ino, at as i64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&mut self, _: &Request<'_>, _: u64, reply: ReplyStatfs) {
        let free = self.limits.free / 4096;
        reply.statfs(free, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn setxattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        name: &OsStr,
        value: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if let Some((refused, errno)) = self.limits.refused_xattr
            && name.to_str().is_some_and(|name| name.starts_with(refused))
        {
            return reply.error(errno);
        }
        let set = self.xattrs(ino).map(|xattrs| {
            xattrs.insert(name.to_owned(), value.to_vec());
        });
        answer_empty(reply, set);
    }

    fn getxattr(&mut self, _: &Request<'_>, ino: u64, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = self.xattrs(ino).map(|xattrs| xattrs.get(name).cloned());
        let found = found.and_then(|value| value.ok_or(libc::ENODATA));
        answer_xattr(reply, size, found);
    }

    fn listxattr(&mut self, _: &Request<'_>, ino: u64, size: u32, reply: ReplyXattr) {
        let names = self.xattrs(ino).map(|xattrs| {
            let names = xattrs.keys().map(|name| name.as_encoded_bytes());
            names.flat_map(|name| [name, b"\0"].concat()).collect()
        });
        answer_xattr(reply, size, names);
    }

    fn removexattr(&mut self, _: &Request<'_>, ino: u64, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.xattrs(ino).map(|xattrs| xattrs.remove(name));
        let removed = removed.and_then(|value| value.map(drop).ok_or(libc::ENODATA));
        answer_empty(reply, removed);
    }
}
