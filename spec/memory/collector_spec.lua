-- collector_spec: garbage tensors are collected in time, whatever else the Lua heap holds. One process a case, since the
-- high-water mark of memory is one of the process.
local ag = require "argand"

local command = require("support.terminal").this_command()
local is_sanitized = not ag.info().build:find("sanitizers: none", 1, true)
local count = is_sanitized and 3000 or 30000

-- Runs a script in a process of its own; returns what it prints.
local function run_child(script)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(script)
  file:close()
  local pipe = assert(io.popen(("%q %q 2>&1"):format(command, path)))
  local text = pipe:read "*a"
  pipe:close()
  os.remove(path)
  return text
end

local template = [[
local ag = require "argand"
local heap = {}
for i = 1, %d do heap[i] = {i} end
local x = ag.ones(262144)
for i = 1, %d do local y = x + i end
local status = io.open("/proc/self/status"):read "*a"
print("peak", status:match "VmHWM:%%s*(%%d+)", #heap)
]]

describe("one-MiB temporaries", function()
  for _, tables in ipairs {0, 100000, 1000000} do
    it(("stay below 400 MB beside %d Lua tables"):format(tables), function()
      local text = run_child(template:format(tables, count))
      local peak = tonumber(text:match "peak%s+(%d+)")
      assert.truthy(peak, text)
      assert.is_true(is_sanitized or peak / 1024 < 400, ("%.0f MB"):format(peak / 1024)) -- sanitizers keep freed memory
    end)
  end
end)

describe("views and handles", function()
  it("are not charged with the whole storage each time", function()
    local x = ag.zeros(1000, 65536) -- 250 MiB
    local held = ag.memory().handles
    local rows = {}
    for i = 1, 1000 do rows[i] = x[i] end
    assert.is_true(ag.memory().handles - held < 1000 * 1024)
    assert.equal(1000, #rows)
  end)
end)
