local lease = load_lease()
local reports = {}
for _, field in ipairs(fields('r')) do
  local r = cmsgpack.unpack(field[2])
  reports[#reports + 1] = { field[1], r[1], r[2], r[3], r[4], r[5] }
end
return { lease and lease_fields(lease) or false, reports }
