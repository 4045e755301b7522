--- cast: sample data; from each dtype to each.
local calls = {}
for _, dtype in ipairs {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"} do
  -- Differences in f64 do not see through the rounding of a narrower dtype.
  local gradient = dtype == "f64" and "smooth" or (dtype:find("f", 1, true) and "agree")
  calls[#calls + 1] = {x = {5, 7}, dtype = dtype, gradient = gradient or false}
end

return {
  gen = {x = {range = {0.2, 5}}}, calls = calls, smooth = true,
  empty = {{x = {0, 3}, dtype = "f64"}},
  scalar = {{x = {}, dtype = "i32", gradient = false}, {x = {}, dtype = "f64"}},
  special = {
    {x = {37}, dtype = "f64"}, {x = {37}, dtype = "f32"}, {x = {37}, dtype = "f16"}, {x = {37}, dtype = "bf16"},
    {x = {37}, dtype = "bool", gradient = false},
  },
  large = {x = {100003}, dtype = "f16"},
  expect = {
    {{x = {1.75, -1.75, 0}, dtype = "i32"}, {1, -1, 0}}, {{x = {0.5, 0}, dtype = "bool"}, {true, false}},
  },
}
