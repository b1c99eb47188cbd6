-- ARGV: token, epoch, number, seconds to live, then node, raised and body of every allocation
local lease = load_lease()
local epoch, number = tonumber(ARGV[2]), tonumber(ARGV[3])
if not lease or lease.holder ~= ARGV[1] or lease.epoch ~= epoch or lease.number >= number then
  return 'lost'
end
lease.number = number
store_lease(lease)

-- A grant is superseded by a newer one that the node has already echoed. The newest echoed one
-- stays: if the report is lost, it bounds what the node has in force.
local function drop_superseded()
  local echoed, newest = {}, {}
  local grants = fields('g')
  for _, field in ipairs(fields('r')) do
    local r = cmsgpack.unpack(field[2])
    echoed[field[1]] = { tonumber(r[2]), tonumber(r[3]) }
  end
  local function each(visit)
    for _, field in ipairs(grants) do
      local node, e, n = string.match(field[1], '^(%x+):(%d+):(%d+)$')
      e, n = tonumber(e), tonumber(n)
      local echo = echoed[node]
      if echo and not newer(e, n, echo[1], echo[2]) then visit(field[1], node, e, n) end
    end
  end
  each(function(_, node, e, n)
    local known = newest[node]
    if not known or newer(e, n, known[1], known[2]) then newest[node] = { e, n } end
  end)
  each(function(name, node, e, n)
    if newer(newest[node][1], newest[node][2], e, n) then redis.call('HDEL', key, 'g:' .. name) end
  end)
end

local raises = false
for i = 5, #ARGV, 3 do
  local node = ARGV[i]
  -- Like a node that is not registered: it left, or was forgotten.
  if redis.call('HEXISTS', key, 'r:' .. node) == 1 then
    redis.call('HSET', key, 'a:' .. node, cmsgpack.pack({ ARGV[2], ARGV[3], ARGV[i + 2] }))
    if ARGV[i + 1] == '1' then
      raises = true
      redis.call('HSET', key, 'g:' .. node .. ':' .. ARGV[2] .. ':' .. ARGV[3], ARGV[i + 2])
    end
  end
end
if raises then drop_superseded() end
redis.call('EXPIRE', key, ARGV[4])
return 'ok'
