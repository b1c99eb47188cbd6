-- Shared by all scripts. KEYS[1] is one hash with everything, so that the server loses all of it
-- or nothing:
--   lease          holder, epoch, beat, number, clock, emptied
--   r:TOKEN        report: counter, epoch, number, name, body
--   a:TOKEN        allocation: epoch, number, body
--   g:TOKEN:E:N    grant that raised something
--   x:TOKEN        forgotten node
--   f:KEY          fact: body, expiry, duration
--   facts          version of the facts
-- Numbers are stored as text without an exponent.
local key = KEYS[1]

local function digits(n) return string.format('%.0f', n) end

local function load_lease()
  local packed = redis.call('HGET', key, 'lease')
  if not packed then return nil end
  local l = cmsgpack.unpack(packed)
  return {
    holder = l[1], epoch = tonumber(l[2]), beat = tonumber(l[3]), number = tonumber(l[4]),
    clock = tonumber(l[5]), emptied = l[6] == '1',
  }
end

local function lease_fields(l)
  return {
    l.holder, digits(l.epoch), digits(l.beat), digits(l.number), digits(l.clock),
    l.emptied and '1' or '0',
  }
end

local function store_lease(l)
  redis.call('HSET', key, 'lease', cmsgpack.pack(lease_fields(l)))
end

-- Fields and values whose name begins with a letter and a colon, by the rest of the name.
local function fields(letter)
  local found = {}
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == letter .. ':' then
      found[#found + 1] = { string.sub(all[i], 3), all[i + 1] }
    end
  end
  return found
end

local function remove_grants(token)
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if string.sub(name, 1, #token + 3) == 'g:' .. token .. ':' then
      redis.call('HDEL', key, name)
    end
  end
end

local function remove_node(token)
  redis.call('HDEL', key, 'r:' .. token, 'a:' .. token)
  remove_grants(token)
  local l = load_lease()
  if l and l.holder == token then
    l.holder = ''
    l.beat = l.beat + 1
    store_lease(l)
  end
end

local function newer(e1, n1, e2, n2)
  return e1 > e2 or (e1 == e2 and n1 > n2)
end
