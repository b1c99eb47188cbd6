-- ARGV: version, seconds to live, then key, 'set' or 'drop', body and milliseconds or '' of every
-- change
local lease = load_lease()
local clock = lease and lease.clock or 0
for _, field in ipairs(fields('f')) do
  local f = cmsgpack.unpack(field[2])
  if f[2] ~= '' and tonumber(f[2]) <= clock then redis.call('HDEL', key, 'f:' .. field[1]) end
end
for i = 3, #ARGV, 4 do
  local name = 'f:' .. ARGV[i]
  if ARGV[i + 1] == 'drop' then
    redis.call('HDEL', key, name)
  else
    local lasts = ARGV[i + 3]
    local expires = lasts ~= '' and digits(clock + tonumber(lasts)) or ''
    redis.call('HSET', key, name, cmsgpack.pack({ ARGV[i + 2], expires, lasts }))
  end
end
redis.call('HSET', key, 'facts', ARGV[1])
redis.call('EXPIRE', key, ARGV[2])
return 'ok'
