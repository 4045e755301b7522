--- info: `argand info [--caps]`: version, build, processor, threads, BLAS and devices; with --caps how every op runs where.
local core = require "argand.core"

local M = {}

local DTYPES = { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool" }
local SIGNS = { native = "N", composed = "c", staged = "s" }

local function print_device(device)
  print(("  %-12s %s%s"):format(device.name, device.description or "",
    device.has_collectives and "" or " (no collectives)"))
end

local function print_summary()
  local info = core.info()
  print("argand   " .. info.version)
  print("build    " .. info.build)
  print("cpu      " .. info.cpu)
  print("threads  " .. core.get_num_threads())
  print("blas     " .. info.blas)
  print("lua      " .. jit.version .. (jit.status() and "" or ", JIT off"))
  print("devices")
  for _, device in ipairs(core.device_list()) do print_device(device) end
end

--- How each visible op runs on a device: {op = {dtype = "native" | "composed" | "staged" | false}}.
---@param device string
---@return table<string, table<string, string|boolean>>
function M.capabilities(device)
  local result = {}
  for _, name in ipairs(core.op_names()) do
    local row = {}
    for _, dtype in ipairs(DTYPES) do row[dtype] = (core.supports(name, dtype, device)) end
    result[name] = row
  end
  return result
end

local function print_capabilities(device)
  local capabilities, names = M.capabilities(device), core.op_names()
  table.sort(names)
  print(("\n%s: N native, c composed of other ops, s staged through the cpu, . none"):format(device))
  local header = {}
  for i, dtype in ipairs(DTYPES) do header[i] = ("%4s"):format(dtype) end
  print(("%-24s %s"):format("op", table.concat(header, " ")))
  for _, name in ipairs(names) do
    local cells = {}
    for i, dtype in ipairs(DTYPES) do cells[i] = ("%4s"):format(SIGNS[capabilities[name][dtype]] or ".") end
    print(("%-24s %s"):format(name, table.concat(cells, " ")))
  end
end

---@param args string[]
function M.main(args)
  for _, arg in ipairs(args) do
    if arg ~= "--caps" then core.raise("option", "info", "unknown argument " .. arg, "known is --caps") end
  end
  print_summary()
  if args[1] then
    for _, device in ipairs(core.device_list()) do print_capabilities(device.name) end
  end
end

return M
