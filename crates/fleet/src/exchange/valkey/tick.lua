-- ARGV: token, name, echoed epoch, echoed number, body, expected holder, expected beat,
-- milliseconds for the fleet clock at a renewal, at a takeover, seconds to live, version of the
-- facts that were seen, epoch whose grants are known, replaced tokens...
local token, name = ARGV[1], ARGV[2]
local epoch, number = tonumber(ARGV[3]), tonumber(ARGV[4])
if redis.call('HEXISTS', key, 'x:' .. token) == 1 then return { 'fenced' } end

for i = 13, #ARGV do remove_node(ARGV[i]) end

local counter = 0
local before = redis.call('HGET', key, 'r:' .. token)
if before then counter = tonumber(cmsgpack.unpack(before)[1]) end
redis.call('HSET', key, 'r:' .. token,
  cmsgpack.pack({ digits(counter + 1), ARGV[3], ARGV[4], name, ARGV[5] }))

local found = load_lease()
local lease = found
local reports = false
local held = false
local takes = not found or found.holder == ''
  or (found.holder == ARGV[6] and digits(found.beat) == ARGV[7])

if takes or found.holder == token then
  reports = {}
  local echoed = 0
  for _, field in ipairs(fields('r')) do
    local r = cmsgpack.unpack(field[2])
    echoed = math.max(echoed, tonumber(r[2]))
    reports[#reports + 1] = { field[1], r[1], r[2], r[3], r[4], r[5] }
  end
  held = true
  local last = found or { holder = '', epoch = 0, beat = 0, number = 0, clock = 0, emptied = true }
  if takes or echoed > last.epoch then
    lease = {
      holder = token,
      epoch = math.max(last.epoch, echoed) + 1,
      beat = last.beat + 1,
      number = 0,
      clock = last.clock + tonumber(takes and ARGV[9] or ARGV[8]),
      -- An allocator that published nothing has learned nothing. Nodes that know an epoch which
      -- the server does not: it lost what came since.
      emptied = (last.emptied and last.number == 0) or echoed > last.epoch,
    }
  else
    lease = {
      holder = token, epoch = last.epoch, beat = last.beat + 1, number = last.number,
      clock = last.clock + tonumber(ARGV[8]), emptied = last.emptied,
    }
  end
  store_lease(lease)
end

local grants = false
if held and digits(lease.epoch) ~= ARGV[12] then
  grants = {}
  for _, field in ipairs(fields('g')) do
    local node, e, n = string.match(field[1], '^(%x+):(%d+):(%d+)$')
    grants[#grants + 1] = { node, e, n, field[2] }
  end
end

local allocation = false
local packed = redis.call('HGET', key, 'a:' .. token)
if packed then
  local a = cmsgpack.unpack(packed)
  if newer(tonumber(a[1]), tonumber(a[2]), epoch, number) then allocation = a end
end

local version = redis.call('HGET', key, 'facts') or ''
local facts = false
if version ~= ARGV[11] then
  facts = {}
  for _, field in ipairs(fields('f')) do
    local f = cmsgpack.unpack(field[2])
    facts[#facts + 1] = { field[1], f[1], f[2], f[3] }
  end
end

redis.call('EXPIRE', key, ARGV[10])
return {
  'ok', found and lease_fields(found) or false, held and lease_fields(lease) or false, allocation,
  version, facts, reports, grants, lease and digits(lease.clock) or '0',
}
