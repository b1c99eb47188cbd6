-- ARGV: token, 'leave' or 'forget'
remove_node(ARGV[1])
if ARGV[2] == 'forget' then redis.call('HSET', key, 'x:' .. ARGV[1], '1') end
return 'ok'
