-- The state file of a planned job with version 2 of the tables. The locations and owners of the trees
-- are inserted by older.py.
BEGIN TRANSACTION;
CREATE TABLE claim (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name BLOB NOT NULL);
CREATE TABLE control (id INTEGER PRIMARY KEY, verb TEXT NOT NULL, argument TEXT NOT NULL DEFAULT '');
CREATE TABLE destination (
    parent INTEGER NOT NULL, name BLOB NOT NULL, kind INTEGER NOT NULL, size INTEGER NOT NULL,
    modified INTEGER, mode INTEGER, uid INTEGER, gid INTEGER, special INTEGER, target BLOB,
    device INTEGER, inode INTEGER,
    copied INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
INSERT INTO "destination" VALUES(0,X'',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,0);
INSERT INTO "destination" VALUES(1,X'676F6E65',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,0);
INSERT INTO "destination" VALUES(1,X'73616D65',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,0);
INSERT INTO "destination" VALUES(1,X'737562',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,0);
INSERT INTO "destination" VALUES(2,X'61',1,5,1709294400123456789,33188,{uid},{gid},NULL,NULL,NULL,NULL,0);
INSERT INTO "destination" VALUES(2,X'62',1,5,1709294400123456789,33188,{uid},{gid},NULL,NULL,NULL,NULL,0);
INSERT INTO "destination" VALUES(3,X'64656570',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,0);
INSERT INTO "destination" VALUES(4,X'6368616E6765642E747874',1,3,1706745600000000000,33188,{uid},{gid},NULL,NULL,NULL,NULL,0);
CREATE TABLE event (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, text TEXT NOT NULL);
INSERT INTO "event" VALUES(1,1794858209539831153,'job made');
INSERT INTO "event" VALUES(2,1794858209549284202,'plan finished');
CREATE TABLE failure (
    parent INTEGER NOT NULL, name BLOB NOT NULL, phase TEXT NOT NULL,
    kind TEXT NOT NULL, cause TEXT NOT NULL, attempts INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (parent, name, phase)
) WITHOUT ROWID;
CREATE TABLE folder (
    id INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    name BLOB NOT NULL,
    depth INTEGER NOT NULL,
    path BLOB NOT NULL,
    src INTEGER NOT NULL DEFAULT 0,
    dst INTEGER NOT NULL DEFAULT 0,
    -- What a listing that was cut off left: the cursors at which it goes on.
    src_cursor BLOB,
    dst_cursor BLOB,
    subfolders INTEGER NOT NULL DEFAULT 0,
    -- Whether something was written into it, so that its time must be set again.
    touched INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "folder" VALUES(1,0,X'',0,X'',1,1,NULL,NULL,2,0);
INSERT INTO "folder" VALUES(2,1,X'73616D65',1,X'73616D652F',1,1,NULL,NULL,0,0);
INSERT INTO "folder" VALUES(3,1,X'737562',1,X'7375622F',1,1,NULL,NULL,1,0);
INSERT INTO "folder" VALUES(4,3,X'64656570',2,X'7375622F646565702F',1,1,NULL,NULL,0,0);
CREATE TABLE hash (
    path BLOB PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER, sha256 BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE link (
    device INTEGER NOT NULL, inode INTEGER NOT NULL, parent INTEGER NOT NULL, name BLOB NOT NULL,
    PRIMARY KEY (device, inode, parent, name)
) WITHOUT ROWID;
INSERT INTO "link" VALUES({device},{inode},1,X'6F6E65');
INSERT INTO "link" VALUES({device},{inode},1,X'74776F');
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO "meta" VALUES('began',1794858209539805154);
INSERT INTO "meta" VALUES('destination',CAST('{place}/dst' AS BLOB));
INSERT INTO "meta" VALUES('filters','{"include":[],"exclude":[],"min_size":null,"max_size":null,"min_age":null,"max_age":null,"specials":false}');
INSERT INTO "meta" VALUES('job','558985fc');
INSERT INTO "meta" VALUES('pass',1);
INSERT INTO "meta" VALUES('plan','{"statuses":{"different (size)":{"entries":1,"bytes":5},"missing":{"entries":4,"bytes":9},"not_on_src":{"entries":1,"bytes":0},"same":{"entries":5,"bytes":10}},"source":{"entries":10,"bytes":24},"failed_folders":0}');
INSERT INTO "meta" VALUES('source',CAST('{place}/src' AS BLOB));
INSERT INTO "meta" VALUES('stage','planned');
CREATE TABLE part (
    parent INTEGER NOT NULL, name BLOB NOT NULL, done INTEGER NOT NULL, resume BLOB NOT NULL, hash BLOB,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE TABLE rule (id INTEGER PRIMARY KEY, verb TEXT NOT NULL, pattern TEXT NOT NULL, UNIQUE (verb, pattern));
CREATE TABLE source (
    parent INTEGER NOT NULL, name BLOB NOT NULL, kind INTEGER NOT NULL, size INTEGER NOT NULL,
    modified INTEGER, mode INTEGER, uid INTEGER, gid INTEGER, special INTEGER, target BLOB,
    device INTEGER, inode INTEGER,
    folder INTEGER, excluded INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
INSERT INTO "source" VALUES(0,X'',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,1,0);
INSERT INTO "source" VALUES(1,X'6C696E6B',2,0,1709294400123456789,41471,{uid},{gid},NULL,X'6F6E65',NULL,NULL,NULL,0);
INSERT INTO "source" VALUES(1,X'6F6E65',1,3,1709294400123456789,33188,{uid},{gid},NULL,NULL,{device},{inode},NULL,0);
INSERT INTO "source" VALUES(1,X'73616D65',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,2,0);
INSERT INTO "source" VALUES(1,X'737562',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,3,0);
INSERT INTO "source" VALUES(1,X'74776F',1,3,1709294400123456789,33188,{uid},{gid},NULL,NULL,{device},{inode},NULL,0);
INSERT INTO "source" VALUES(2,X'61',1,5,1709294400123456789,33188,{uid},{gid},NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO "source" VALUES(2,X'62',1,5,1709294400123456789,33188,{uid},{gid},NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO "source" VALUES(3,X'64656570',0,0,1709294400123456789,16877,{uid},{gid},NULL,NULL,NULL,NULL,4,0);
INSERT INTO "source" VALUES(3,X'6E6577',1,3,1709294400123456789,33188,{uid},{gid},NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO "source" VALUES(4,X'6368616E6765642E747874',1,5,1709294400123456789,33188,{uid},{gid},NULL,NULL,NULL,NULL,NULL,0);
CREATE TABLE total (
    folder INTEGER PRIMARY KEY,
    entries INTEGER NOT NULL, bytes INTEGER NOT NULL,
    work INTEGER NOT NULL, work_bytes INTEGER NOT NULL,
    trouble INTEGER NOT NULL
);
INSERT INTO "total" VALUES(1,10,24,5,14,0);
INSERT INTO "total" VALUES(2,2,10,0,0,0);
INSERT INTO "total" VALUES(3,3,8,2,8,0);
INSERT INTO "total" VALUES(4,1,5,1,5,0);
CREATE INDEX folder_depth ON folder (depth);
COMMIT;
PRAGMA user_version = 2;
