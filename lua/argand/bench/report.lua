--- report: what benches share: their arguments, times as text, numbers as JSON.
local core = require "argand.core"

local M = {}

--- Reads arguments: --json FILE, the flags that are known, and names.
---@param args string[]
---@param flags string[] "--quick" …; options.quick becomes true
---@return table options, string[] names
function M.read_args(args, flags)
  local options, names, known, i = {}, {}, {}, 1
  for _, flag in ipairs(flags) do known[flag] = flag:sub(3):gsub("-", "_") end
  while args[i] do
    local arg = args[i]
    if known[arg] then
      options[known[arg]] = true
    elseif arg == "--json" then
      i = i + 1
      options.json = args[i] or core.raise("argument", "bench", "--json needs a file name")
    elseif arg:sub(1, 2) == "--" then
      local hint = ("known are %s and --json FILE"):format(table.concat(flags, ", "))
      core.raise("option", "bench", "unknown option " .. arg, hint)
    else
      names[#names + 1] = arg
    end
    i = i + 1
  end
  if options.json then -- refused before anything is measured
    local file, err = io.open(options.json, "a")
    if not file then core.raise("file", "bench", err) end
    file:close()
  end
  return options, names
end

--- Seconds with the unit that suits them.
---@param seconds number
---@return string
function M.time_text(seconds)
  local ns = seconds * 1e9
  return ns < 1e4 and ("%.0f ns"):format(ns) or ns < 1e7 and ("%.1f us"):format(ns / 1e3) or ("%.1f ms"):format(ns / 1e6)
end

--- The value as text, "-" for none.
---@param format string
---@param value any
---@return string
function M.optional(format, value)
  return value and format:format(value) or "-"
end

local function json(value)
  if type(value) ~= "table" then return type(value) == "string" and ("%q"):format(value) or tostring(value) end
  local parts = {}
  if #value > 0 then
    for i, item in ipairs(value) do parts[i] = json(item) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  for key, item in pairs(value) do parts[#parts + 1] = ("%q: %s"):format(key, json(item)) end
  table.sort(parts)
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- Writes a report to a file.
---@param path string
---@param report table
function M.write_json(path, report)
  local file, err = io.open(path, "w")
  if not file then core.raise("value", "bench", err) end
  file:write(json(report), "\n")
  file:close()
end

return M
